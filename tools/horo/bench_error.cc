// How far sums of short floats are from the truth: our sums and those of a ring that rounds at every hop, both against
// the best that the type can hold, the exact sum rounded once. Up to 8 contributors are ranks of an all_reduce, each a
// thread; more are simulated by the kernel, which is given all inputs at once.

#include <cmath>
#include <cstdint>
#include <iomanip>
#include <iostream>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include "ring/group.h"
#include "ring/links.h"
#include "ring/reduce/reduce.h"
#include "tests/ring/reduce/float_formats.h"
#include "tools/horo/bench/bench.h"

namespace horo::tools {
namespace {

constexpr int kMostRanks = 8;
constexpr double kMostRatio = 1.05;

using Bytes = std::vector<std::byte>;
using Values = std::vector<double>;

// Numbers of a type to and from its codes, by the definition of the type.
class Codes {
 public:
  explicit Codes(const FloatFormat& format) : format_(format) {
    for (std::uint32_t code = 0; code < format.codes(); ++code) meanings_.push_back(meaning(format, code));
  }

  Values read(const Bytes& bytes) const {
    Values values;
    const std::size_t each = size_of(format_.dtype);
    for (std::size_t at = 0; at < bytes.size(); at += each) {
      std::uint32_t code = std::to_integer<std::uint32_t>(bytes[at]);
      if (each == 2) code |= std::to_integer<std::uint32_t>(bytes[at + 1]) << 8;
      values.push_back(meanings_[code]);
    }
    return values;
  }

  // Of numbers that the type has.
  Bytes write(const Values& values) const {
    Bytes bytes;
    for (const double value : values) {
      const std::uint32_t code = code_of(value);
      bytes.push_back(static_cast<std::byte>(code));
      if (size_of(format_.dtype) == 2) bytes.push_back(static_cast<std::byte>(code >> 8));
    }
    return bytes;
  }

 private:
  // Codes of positive numbers ascend with them.
  std::uint32_t code_of(double value) const {
    const std::uint32_t half = format_.codes() / 2;
    std::uint32_t low = 0, high = half;
    while (high - low > 1) {
      const std::uint32_t middle = (low + high) / 2;
      (meanings_[middle] <= std::fabs(value) ? low : high) = middle;
    }
    return std::signbit(value) ? low + half : low;
  }

  const FloatFormat& format_;
  Values meanings_;
};

Bytes all_reduced(const FloatFormat& format, std::vector<Bytes> inputs) {
  const int size = static_cast<int>(inputs.size());
  std::vector<Links> links = connect_in_process(size);
  const auto as_rank = [&](int rank) {
    Counters counters;
    std::vector<int> ranks(inputs.size());
    std::iota(ranks.begin(), ranks.end(), 0);
    const auto group = make_host_group(*links[static_cast<std::size_t>(rank)].transport, {ranks}, {}, counters);
    Bytes& mine = inputs[static_cast<std::size_t>(rank)];
    Collective c;
    c.dtype = format.dtype;
    c.contributors.assign(ranks.begin(), ranks.end());
    c.counts = {mine.size() / size_of(format.dtype)};
    c.in = c.out = {mine.data(), mine.size()};
    group->run(c);
  };
  {
    std::vector<std::jthread> others;
    for (int rank = 1; rank < size; ++rank) others.emplace_back(as_rank, rank);
    as_rank(0);
  }
  return inputs[0];
}

Bytes simulated(const FloatFormat& format, const std::vector<Bytes>& inputs) {
  std::vector<std::int64_t> ids(inputs.size());
  std::iota(ids.begin(), ids.end(), 0);
  std::vector<TreeInput> leaves;
  for (const Bytes& input : inputs) leaves.push_back({input.data()});
  Bytes out(inputs[0].size());
  reduce_tree({format.dtype, ReduceOp::kSum, {}}, canonical_tree(ids), leaves, out.data(),
              out.size() / size_of(format.dtype));
  return out;
}

// Chunk c begins its way behind member c; each member on it adds its own and rounds.
Values ring(const FloatFormat& format, const std::vector<Values>& inputs) {
  const std::size_t n = inputs.size(), count = inputs[0].size();
  Values sums(count);
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t first = i * n / count + 1;
    double sum = inputs[first % n][i];
    for (std::size_t hop = 1; hop < n; ++hop) sum = nearest(format, sum + inputs[(first + hop) % n][i]);
    sums[i] = sum;
  }
  return sums;
}

double rms(const Values& values, const std::vector<long double>& exact) {
  long double squares = 0;
  for (std::size_t i = 0; i < values.size(); ++i) squares += (values[i] - exact[i]) * (values[i] - exact[i]);
  return std::sqrt(static_cast<double>(squares / static_cast<long double>(values.size())));
}

struct Figures {
  double rounded_once = 0;  // RMS errors
  double ours = 0;
  double ring = 0;
};

Figures measure(const FloatFormat& format, int contributors, std::size_t elements) {
  std::mt19937_64 random(static_cast<std::uint64_t>(contributors));
  std::normal_distribution<double> normal;
  const Codes codes(format);
  std::vector<Values> inputs(static_cast<std::size_t>(contributors), Values(elements));
  std::vector<Bytes> bytes;
  std::vector<long double> exact(elements, 0);
  for (Values& input : inputs) {
    for (std::size_t i = 0; i < elements; ++i) exact[i] += input[i] = nearest(format, normal(random));
    bytes.push_back(codes.write(input));
  }
  Values rounded;
  for (const long double sum : exact) rounded.push_back(nearest(format, static_cast<double>(sum)));
  const Bytes sums = contributors <= kMostRanks ? all_reduced(format, bytes) : simulated(format, bytes);
  return {rms(rounded, exact), rms(codes.read(sums), exact), rms(ring(format, inputs), exact)};
}

}  // namespace

int bench_error(std::size_t elements) {
  std::cout
      << "# sums of normally distributed numbers (deviation 1, so that no sum leaves the range of an 8-bit type)\n"
      << "# RMS error over that of the exact sum rounded once; at most " << kMostRatio << " is right\n"
      << "#       type contributors  rounded once       horo  ring that rounds at every hop\n"
      << std::fixed;
  bool right = true;
  for (const FloatFormat& format : kFloatFormats) {
    for (const int contributors : {2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64}) {
      const Figures figures = measure(format, contributors, elements);
      const double ratio = figures.ours / figures.rounded_once;
      right = right && ratio <= kMostRatio;
      std::cout << std::setw(12) << name_of(format.dtype) << std::setw(13) << contributors << std::setw(14)
                << std::setprecision(6) << figures.rounded_once << std::setw(11) << std::setprecision(4) << ratio
                << std::setw(31) << figures.ring / figures.rounded_once << std::endl;
    }
  }
  std::cout << (right ? "# all are\n" : "# WRONG: not all are\n");
  return right ? 0 : 1;
}

}  // namespace horo::tools
