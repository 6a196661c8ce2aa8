// Times and jobs for tests of horo/steps, in milliseconds.
#pragma once

#include <chrono>
#include <map>
#include <string>

#include "horo/steps/step_account.h"

namespace horo::test {

constexpr TimePoint at(std::int64_t ms) {
  return TimePoint{} + std::chrono::milliseconds(1'000'000 + ms);
}

constexpr std::chrono::nanoseconds ms(std::int64_t count) {
  return std::chrono::milliseconds(count);
}

// A job of the world: the last rank was ready at `ready`; it has phases without pack and unpack.
inline JobTime job_of(std::int64_t ready, std::int64_t released, std::int64_t begun, std::int64_t transferred,
                      std::int64_t delivered) {
  JobTime job;
  job.last = 2;
  job.ready = at(ready);
  job.released = at(released);
  job.begun = at(begun);
  job.ends = {at(begun), at(transferred), at(transferred), at(delivered)};
  return job;
}

class Skews : public SkewByRank {
 public:
  void add(std::int32_t rank, Duration skew) override { by_rank[rank] += skew; }
  std::map<std::int32_t, Duration> by_rank;
};

inline std::chrono::nanoseconds sum_of(const Bars& bars) {
  std::chrono::nanoseconds sum{};
  for (const auto bar : bars) sum += bar;
  return sum;
}

// The bars that are not zero, in milliseconds.
inline std::map<std::string, std::int64_t> shown(const Bars& bars) {
  std::map<std::string, std::int64_t> found;
  for (std::size_t i = 0; i < kBars; ++i) {
    if (bars[i].count() != 0) found[std::string(kBarNames[i])] = bars[i] / std::chrono::milliseconds(1);
  }
  return found;
}

}  // namespace horo::test
