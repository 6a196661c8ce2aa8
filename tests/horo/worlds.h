// A world of sessions whose ranks are threads of this process, with a deadline for the whole test.
#pragma once

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "horo/horo.h"

namespace horo {

inline constexpr std::chrono::seconds kTestDeadline{60};

// Runs `body` on one rank for each of the links. Returns the text of the exception of each rank, or "". Aborts the
// process if a rank does not end in time. `change` modifies the config of each rank.
inline std::vector<std::string> run_world_until(TimePoint until, std::vector<Links> links,
                                                const std::function<void(Session&)>& body, const Config& base = {},
                                                const std::function<void(Config&)>& change = {}) {
  const int size = static_cast<int>(links.size());
  std::vector<std::future<std::string>> ends;
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < size; ++rank) {
    std::packaged_task<std::string()> task(
        [&body, &change, base, rank, size,
         mine = std::make_shared<Links>(std::move(links[static_cast<std::size_t>(rank)]))] {
          Config config = base;
          config.rank = config.local_rank = rank;
          config.size = config.local_size = size;
          if (change) change(config);
          try {
            Session session(config, std::move(*mine));
            body(session);
            return std::string();
          } catch (const std::exception& e) {
            return std::string(e.what());
          }
        });
    ends.push_back(task.get_future());
    threads.emplace_back(std::move(task));
  }
  std::vector<std::string> thrown;
  for (int rank = 0; rank < size; ++rank) {
    if (ends[static_cast<std::size_t>(rank)].wait_until(until) != std::future_status::ready) {
      std::fprintf(stderr, "rank %d did not end in time\n", rank);
      std::abort();
    }
    thrown.push_back(ends[static_cast<std::size_t>(rank)].get());
  }
  return thrown;
}

inline std::vector<std::string> run_world_over(std::vector<Links> links, const std::function<void(Session&)>& body,
                                               const Config& base = {},
                                               const std::function<void(Config&)>& change = {}) {
  return run_world_until(Clock::now() + kTestDeadline, std::move(links), body, base, change);
}

// The same over in-process links.
inline std::vector<std::string> run_world(int size, const std::function<void(Session&)>& body, const Config& base = {},
                                          const std::function<void(Config&)>& change = {}) {
  return run_world_over(connect_in_process(size), body, base, change);
}

inline TensorSpec spec_of(CollectiveKind kind, const std::string& name, std::vector<std::int64_t> shape) {
  TensorSpec spec;
  spec.kind = kind;
  spec.name = name;
  spec.once = name.empty();
  spec.shape = std::move(shape);
  return spec;
}

// Waits for the work. Returns its outcome, or throws its failure.
inline const Outcome& outcome_of(Session& session, const std::shared_ptr<Work>& work) {
  session.wait(std::span(&work, 1), TimePoint::max());
  return work->outcome();
}

inline std::vector<float> floats(const Outcome& outcome) {
  const auto* first = reinterpret_cast<const float*>(outcome.data.get());
  return {first, first + outcome.bytes / sizeof(float)};
}

// A barrier before the end of a test: rank 0 coordinates all sets, so it must not leave first.
inline void meet(Session& session) {
  session.run(spec_of(CollectiveKind::kBarrier, "the end", {}), nullptr, nullptr);
}

// The text of what the call throws, or "".
inline std::string thrown_by(const std::function<void()>& call) {
  try {
    call();
  } catch (const std::exception& e) {
    return e.what();
  }
  return "";
}

inline TensorSpec float_spec(const std::string& name, std::int64_t elements) {
  TensorSpec spec;
  spec.name = name;
  spec.shape = {elements};
  return spec;
}

}  // namespace horo
