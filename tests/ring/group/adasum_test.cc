// Adasum between ranks that are threads, against the recursion in float64 over whole tensors.
#include "ring/group/adasum.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <set>
#include <stdexcept>

#include "horo/base/error.h"
#include "tests/ring/codec/coded.h"

namespace horo::test {
namespace {

using testing::Each;
using testing::HasSubstr;

Doubles combined(const Doubles& a, const Doubles& b) {
  double ab = 0, aa = 0, bb = 0;
  for (std::size_t i = 0; i < a.size(); ++i) ab += a[i] * b[i], aa += a[i] * a[i], bb += b[i] * b[i];
  const double of_a = aa > 0 ? 1 - ab / (2 * aa) : 1, of_b = bb > 0 ? 1 - ab / (2 * bb) : 1;
  Doubles sum;
  for (std::size_t i = 0; i < a.size(); ++i) sum.push_back(of_a * a[i] + of_b * b[i]);
  return sum;
}

// Splits at the largest power of two below the number of values, which is the canonical tree of ids 0 to n - 1.
Doubles expected(const std::vector<Doubles>& values) {
  if (values.size() == 1) return values[0];
  std::size_t left = 1;
  while (2 * left < values.size()) left *= 2;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(left);
  return combined(expected({values.begin(), middle}), expected({middle, values.end()}));
}

Doubles input(int rank, std::size_t count, const std::string& name = "t") {
  const Floats values = values_of(rank, count, 0, name);
  return {values.begin(), values.end()};
}

Doubles expected_of(int size, std::size_t count, const std::string& name = "t") {
  std::vector<Doubles> values;
  for (int rank = 0; rank < size; ++rank) values.push_back(input(rank, count, name));
  return expected(values);
}

Collective adasum_collective(const Rank& rank, std::uint64_t plan = 0) {
  Collective c = coded_collective(rank, ReduceOp::kAdasum, plan);
  c.dtype = DType::kFloat64;
  return c;
}

template <class T>
AdasumTensor adasum_tensor(const std::vector<T>& in, std::vector<T>& out) {
  return {reinterpret_cast<const std::byte*>(in.data()), reinterpret_cast<std::byte*>(out.data()), out.size()};
}

template <class T>
std::vector<T> adasum(Rank& rank, const Collective& c, const std::vector<T>& in) {
  std::vector<T> out(in.size());
  AdasumScratch scratch;
  const AdasumTensor tensor = adasum_tensor(in, out);
  run_adasum(*rank.group, c, {&tensor, 1}, scratch);
  return out;
}

void expect_near(const Doubles& found, const Doubles& exact, double tolerance) {
  ASSERT_EQ(found.size(), exact.size());
  for (std::size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], exact[i], tolerance) << "element " << i;
}

TEST(Adasum, EqualsTheRecursionForEveryNumberOfRanks) {
  for (int size = 1; size <= 9; ++size) {
    for (const std::size_t count : {0, 1, 2, 7, 1000}) {
      Results<double> results(size);
      run_ranks_well({size, Wire::kInProcess, {}}, [&](Rank& rank) {
        results.put(rank.index(), adasum(rank, adasum_collective(rank), input(rank.index(), count)));
      });
      expect_near(results.only(), expected_of(size, count), 1e-11);
    }
  }
}

TEST(Adasum, TheBitsDependOnNeitherTheTransportNorTheTensorsBesideIt) {
  const std::vector<std::pair<std::string, std::size_t>> shapes{{"a", 1}, {"b", 3001}, {"c", 0}, {"d", 17}, {"e", 2}};
  std::set<std::vector<Doubles>> results;
  for (const Wire wire : {Wire::kInProcess, Wire::kTcp, Wire::kShm}) {
    for (const bool together : {false, true}) {
      std::vector<Results<double>> of(shapes.size(), Results<double>(5));
      run_ranks_well({5, wire, {}}, [&](Rank& rank) {
        std::vector<Doubles> values;
        for (const auto& [name, count] : shapes) values.push_back(input(rank.index(), count, name));
        std::vector<AdasumTensor> tensors;
        for (Doubles& each : values) tensors.push_back(adasum_tensor(each, each));
        AdasumScratch scratch;
        for (std::size_t i = 0; i < tensors.size() && !together; ++i) {
          run_adasum(*rank.group, adasum_collective(rank, i), {&tensors[i], 1}, scratch);
        }
        if (together) run_adasum(*rank.group, adasum_collective(rank), tensors, scratch);
        for (std::size_t i = 0; i < values.size(); ++i) of[i].put(rank.index(), values[i]);
      });
      std::vector<Doubles> all;
      for (const Results<double>& each : of) all.push_back(each.only());
      results.insert(all);
      for (std::size_t i = 0; i < shapes.size(); ++i) {
        expect_near(all[i], expected_of(5, shapes[i].second, shapes[i].first), 1e-11);
      }
    }
  }
  EXPECT_EQ(results.size(), 1u);
}

TEST(Adasum, OrthogonalValuesAreAddedAndEqualOnesAveraged) {
  run_ranks_well({4, Wire::kInProcess, {}}, [&](Rank& rank) {
    Doubles unit(4, 0.0);
    unit[static_cast<std::size_t>(rank.index())] = 3;
    EXPECT_THAT(adasum(rank, adasum_collective(rank, 0), unit), Each(3.0));
    EXPECT_THAT(adasum(rank, adasum_collective(rank, 1), Doubles(5, 7.0)), Each(7.0));
    const Doubles lone(5, rank.index() == 2 ? 4.0 : 0.0);
    EXPECT_THAT(adasum(rank, adasum_collective(rank, 2), lone), Each(4.0)) << "zeros change nothing";
  });
}

TEST(Adasum, AnAbsentMemberHasNoLeafAndGetsTheSameBitsAsAWorldWithoutIt) {
  Results<double> with_absent(4), smaller(3);
  run_ranks_well({4, Wire::kInProcess, {}}, [&](Rank& rank) {
    Collective c = adasum_collective(rank);
    c.contributors = {0, kAbsent, 2, 3};
    with_absent.put(rank.index(), adasum(rank, c, input(rank.index(), 1001)));
  });
  run_ranks_well({3, Wire::kInProcess, {}}, [&](Rank& rank) {
    Collective c = adasum_collective(rank);
    c.contributors = {0, 2, 3};
    smaller.put(rank.index(), adasum(rank, c, input(rank.index() == 0 ? 0 : rank.index() + 1, 1001)));
  });
  EXPECT_EQ(with_absent.only(), smaller.only());
  const std::vector<Doubles> values{input(0, 1001), input(2, 1001), input(3, 1001)};
  expect_near(with_absent.only(), combined(values[0], combined(values[1], values[2])), 1e-11);
}

TEST(Adasum, Float32AndItsFactors) {
  Results<float> results(3);
  run_ranks_well({3, Wire::kInProcess, {}}, [&](Rank& rank) {
    Collective c = adasum_collective(rank);
    c.dtype = DType::kFloat32;
    c.prescale = 0.5;
    c.postscale = 4;
    results.put(rank.index(), adasum(rank, c, values_of(rank.index(), 500)));
  });
  Doubles exact = expected_of(3, 500);
  for (double& value : exact) value *= 2;  // Adasum of scaled values is the scaled Adasum
  expect_near({results.only().begin(), results.only().end()}, exact, 1e-4);
}

TEST(Adasum, HalvesAreCombinedInFloat32) {
  Results<std::uint16_t> results(3);
  const std::vector<std::uint16_t> halves{0x3C00, 0x4000, 0x4200};  // 1, 2, 3 in float16
  run_ranks_well({3, Wire::kInProcess, {}}, [&](Rank& rank) {
    Collective c = adasum_collective(rank);
    c.dtype = DType::kFloat16;
    const std::vector<std::uint16_t> in{halves[static_cast<std::size_t>(rank.index())]};
    results.put(rank.index(), adasum(rank, c, in));
  });
  EXPECT_EQ(results.only(), std::vector<std::uint16_t>{0x4080}) << "1 and 2 give 1.5, and with 3 2.25";
}

TEST(Adasum, ANanReachesEveryRank) {
  run_ranks_well({3, Wire::kInProcess, {}}, [&](Rank& rank) {
    Doubles in(10, 1.0);
    if (rank.index() == 1) in[9] = std::numeric_limits<double>::quiet_NaN();
    for (const double value : adasum(rank, adasum_collective(rank), in)) EXPECT_TRUE(std::isnan(value));
  });
}

TEST(Adasum, ValuesWhoseSquaresAreTooSmallAreAdded) {
  run_ranks_well({2, Wire::kInProcess, {}}, [&](Rank& rank) {
    EXPECT_THAT(adasum(rank, adasum_collective(rank), Doubles(3, 1e-170)), Each(2e-170));
  });
}

TEST(Adasum, WhatIsInconsistentIsRefusedBeforeAnythingIsSent) {
  run_ranks_well({2, Wire::kInProcess, {}}, [&](Rank& rank) {
    const auto refused = [&](const std::function<void(Collective&)>& change) {
      Collective c = adasum_collective(rank);
      change(c);
      try {
        adasum(rank, c, Doubles(3, 1.0));
      } catch (const std::invalid_argument& error) {
        return std::string(error.what());
      }
      return std::string("nothing was refused");
    };
    EXPECT_THAT(refused([](Collective& c) { c.dtype = DType::kInt64; }), HasSubstr("not defined for int64"));
    EXPECT_THAT(refused([](Collective& c) { c.contributors = {0}; }), HasSubstr("expected 2 contributor ids, got 1"));
    EXPECT_THAT(refused([](Collective& c) { c.contributors = {1, 0}; }), HasSubstr("must ascend"));
    EXPECT_THAT(refused([](Collective& c) { c.contributors = {kAbsent, kAbsent}; }), HasSubstr("no member"));
  });
}

TEST(Adasum, AnotherLengthOnAnotherRankIsAMismatch) {
  run_ranks_well({2, Wire::kInProcess, {}}, [&](Rank& rank) {
    EXPECT_THROW(adasum(rank, adasum_collective(rank), Doubles(rank.index() == 0 ? 8u : 9u, 1.0)), Mismatch);
  });
}

}  // namespace
}  // namespace horo::test
