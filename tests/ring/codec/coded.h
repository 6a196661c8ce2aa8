// Inputs, exact results and calls for tests of coded all_reduces.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "horo/base/wire.h"
#include "ring/codec/codec_table.h"
#include "ring/group/coded_all_reduce.h"
#include "tests/ring/run_ranks.h"

namespace horo::test {

using Floats = std::vector<float>;
using Doubles = std::vector<double>;

// The elements of a tensor on a rank in a step, with the magnitudes of gradients.
inline Floats values_of(int rank, std::size_t count, int step = 0, const std::string& name = "t") {
  std::mt19937_64 random(hash64(name, static_cast<std::uint64_t>(rank * 1000 + step)));
  std::normal_distribution<float> normal(0.0f, 1.0f);
  Floats values;
  for (std::size_t i = 0; i < count; ++i) values.push_back(normal(random) * std::ldexp(1.0f, static_cast<int>(i % 4)));
  return values;
}

inline Collective coded_collective(const Rank& rank, ReduceOp op = ReduceOp::kAverage, std::uint64_t plan = 0) {
  Collective c;
  c.op = op;
  for (int i = 0; i < rank.size(); ++i) c.contributors.push_back(i);
  c.divisor = op == ReduceOp::kAverage ? rank.size() : 1;
  c.plan = 2 * plan;
  c.deadline = soon();
  c.what = "tensor 't'";
  return c;
}

template <class T>
CodedTensor coded_tensor(const std::vector<T>& in, std::vector<T>& out, const std::string& name = "t",
                         CodedState* state = nullptr) {
  return {reinterpret_cast<const std::byte*>(in.data()), reinterpret_cast<std::byte*>(out.data()), in.size(),
          hash64(name), state};
}

// One tensor, without a residual.
inline Floats all_reduced(Rank& rank, const Collective& c, const Codec& codec, const Floats& in) {
  Floats out(in.size(), -1.0f);
  CodedScratch scratch;
  const CodedTensor tensor = coded_tensor(in, out);
  run_coded(*rank.group, c, codec, {&tensor, 1}, scratch);
  return out;
}

// The result of each rank; all are equal.
template <class T>
class Results {
 public:
  explicit Results(int size) : all_(static_cast<std::size_t>(size)) {}
  void put(int rank, std::vector<T> values) { all_[static_cast<std::size_t>(rank)] = std::move(values); }
  const std::vector<T>& only() const {
    for (const auto& each : all_) {
      EXPECT_TRUE(each.size() == all_[0].size() &&
                  (each.empty() || std::memcmp(each.data(), all_[0].data(), each.size() * sizeof(T)) == 0));
    }
    return all_[0];
  }

 private:
  std::vector<std::vector<T>> all_;
};

inline Doubles exact_average(int size, std::size_t count, int step = 0) {
  Doubles sum(count, 0.0);
  for (int rank = 0; rank < size; ++rank) {
    const Floats values = values_of(rank, count, step);
    for (std::size_t i = 0; i < count; ++i) sum[i] += static_cast<double>(values[i]) / size;
  }
  return sum;
}

inline double rms_of_difference(const Floats& values, const Doubles& exact) {
  double sum = 0;
  for (std::size_t i = 0; i < values.size(); ++i) sum += std::pow(static_cast<double>(values[i]) - exact[i], 2);
  return std::sqrt(sum / static_cast<double>(std::max<std::size_t>(1, values.size())));
}

}  // namespace horo::test
