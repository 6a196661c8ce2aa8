// The kit for authors of operations: it finds nothing in good ones, and the fault that was planted in each bad one.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <stdexcept>

#include "tools/horo/conformance/op.h"

namespace horo::tools {
namespace {

template <class T>
Combining each(T (*function)(T, T)) {
  return [function](std::byte* accumulator, const std::byte* value, std::uint64_t count, DType) {
    auto* a = reinterpret_cast<T*>(accumulator);
    const auto* b = reinterpret_cast<const T*>(value);
    for (std::uint64_t i = 0; i < count; ++i) a[i] = function(a[i], b[i]);
    return 0;
  };
}

// Square matrices, on whole tensors: it associates, and does not commute.
int multiply(std::byte* accumulator, const std::byte* value, std::uint64_t count, DType) {
  auto* a = reinterpret_cast<std::uint32_t*>(accumulator);
  const auto* b = reinterpret_cast<const std::uint32_t*>(value);
  std::size_t n = 0;
  while ((n + 1) * (n + 1) <= count) ++n;
  std::vector<std::uint32_t> product(n * n, 0);
  for (std::size_t i = 0; i < n * n * n; ++i) {
    product[i / (n * n) * n + i % n] += a[i / (n * n) * n + i / n % n] * b[i / n % n * n + i % n];
  }
  if (n > 0) std::copy(product.begin(), product.end(), a);
  return 0;
}

TEST(OpConformance, GoodOperationsHaveNoFaults) {
  const std::vector<std::string> none;
  EXPECT_EQ(faults_of({"sum", false, each<float>([](float a, float b) { return a + b; })}, {{DType::kFloat32}}), none);
  EXPECT_EQ(faults_of({"sum", false, each<double>([](double a, double b) { return a + b; })}, {{DType::kFloat64}}),
            none);
  EXPECT_EQ(faults_of({"left", false, each<std::int16_t>([](std::int16_t a, std::int16_t) { return a; })},
                      {{DType::kInt16, DType::kFloat16, DType::kBFloat16}}),
            none);
  EXPECT_EQ(
      faults_of({"gcd", false, each<std::uint64_t>([](std::uint64_t a, std::uint64_t b) { return std::gcd(a, b); })},
                {{DType::kUint64}}),
      none);
  EXPECT_EQ(faults_of({"matrices", true, multiply}, {{DType::kUint32}, {1, 4, 9, 144}}), none);
}

TEST(OpConformance, InputsMayBeTheAuthorsOwn) {
  const Filling positive = [](std::byte* values, std::uint64_t count, DType, std::uint64_t seed) {
    for (std::uint64_t i = 0; i < count; ++i) {
      const float value = 1 + static_cast<float>((i + seed) % 9);
      std::memcpy(values + 4 * i, &value, 4);
    }
  };
  OpTrial trial{{DType::kFloat32}};
  const CustomOp harmonic{"harmonic", false, each<float>([](float a, float b) { return a * b / (a + b); })};
  trial.fill = positive;
  EXPECT_EQ(faults_of(harmonic, trial), std::vector<std::string>());
}

struct OpFault {
  const char* planted;
  Combining combine;
  const char* found;
};

int add(std::byte* accumulator, const std::byte* value, std::uint64_t count, DType dtype) {
  return each<std::int32_t>([](std::int32_t a, std::int32_t b) { return a + b; })(accumulator, value, count, dtype);
}

std::int32_t* ints(std::byte* bytes) {
  return reinterpret_cast<std::int32_t*>(bytes);
}
const std::int32_t* ints(const std::byte* bytes) {
  return reinterpret_cast<const std::int32_t*>(bytes);
}

std::vector<OpFault> faults_of_memory() {
  return {
      {"the result goes to the value",
       [](std::byte* a, const std::byte* b, std::uint64_t n, DType t) {
         return add(const_cast<std::byte*>(b), a, n, t);
       },
       "writes to the value"},
      {"one element too many is written",
       [](std::byte* a, const std::byte* b, std::uint64_t n, DType t) {
         ints(a)[n] = 0;
         return add(a, b, n, t);
       },
       "it writes"},
      {"the element before the first is written",
       [](std::byte* a, const std::byte* b, std::uint64_t n, DType t) {
         if (n > 0) ints(a)[-1] = 0;
         return add(a, b, n, t);
       },
       "outside of the accumulator"},
      {"an element too many is read",
       [](std::byte* a, const std::byte* b, std::uint64_t n, DType t) {
         if (n > 0) ints(a)[0] += ints(b)[n];
         return add(a, b, n, t);
       },
       "beside its elements"},
      {"something is written where there is nothing",
       [](std::byte* a, const std::byte* b, std::uint64_t n, DType t) {
         ints(a)[0] += ints(b)[0];
         return n > 0 ? add(a, b, n, t) : 0;
       },
       "0 elements"},
      {"the address decides",
       [](std::byte* a, const std::byte* b, std::uint64_t n, DType t) {
         if (n > 0 && reinterpret_cast<std::uintptr_t>(a) % 16 != 0) ints(a)[0] += 1;
         return add(a, b, n, t);
       },
       "the address"},
  };
}

std::vector<OpFault> faults_of_meaning() {
  return {
      {"it returns 1", [](std::byte*, const std::byte*, std::uint64_t, DType) { return 1; }, "it returned 1"},
      {"it throws", [](std::byte*, const std::byte*, std::uint64_t, DType) -> int { throw std::logic_error("oh"); },
       "it threw \"oh\""},
      {"it counts its calls",
       [calls = 0](std::byte* a, const std::byte* b, std::uint64_t n, DType t) mutable {
         if (n > 0) ints(a)[0] += ++calls;
         return add(a, b, n, t);
       },
       "combined again"},
      {"it remembers what it saw",
       [last = 0](std::byte* a, const std::byte* b, std::uint64_t n, DType t) mutable {
         add(a, b, n, t);
         const int sum = std::accumulate(ints(b), ints(b) + n, 0);
         if (n > 0) ints(a)[0] += last != 0 && last != sum ? 1 : 0;
         last = n > 0 ? sum : last;
         return 0;
       },
       "combined before"},
      {"the place in the tensor decides",
       [](std::byte* a, const std::byte* b, std::uint64_t n, DType t) {
         add(a, b, n, t);
         for (std::uint64_t i = 5; i < n; i += 6) ints(a)[i] += 1;
         return 0;
       },
       "pieces"},
      {"it needs the whole, and does not say so",
       [](std::byte* a, const std::byte* b, std::uint64_t n, DType t) {
         add(a, b, n, t);
         const std::int32_t sum = std::accumulate(ints(a), ints(a) + n, 0);
         for (std::uint64_t i = 0; i < n; ++i) ints(a)[i] += sum;
         return 0;
       },
       "pieces"},
      {"it does not associate", each<std::int32_t>([](std::int32_t a, std::int32_t b) { return a - b; }),
       "not associative"},
      {"it averages two", each<std::int32_t>([](std::int32_t a, std::int32_t b) { return (a + b) / 2; }),
       "not associative"},
  };
}

void expect_found(const OpFault& fault) {
  const auto found = faults_of({"bad", false, fault.combine}, {{DType::kInt32}, {200}});
  ASSERT_EQ(found.size(), 1u) << fault.planted;
  EXPECT_NE(found[0].find(fault.found), std::string::npos) << fault.planted << ": " << found[0];
  EXPECT_EQ(found[0].rfind("operation 'bad', 200 elements of int32: ", 0), 0u) << found[0];
}

TEST(OpConformance, FaultsOfMemoryAreFound) {
  for (const OpFault& fault : faults_of_memory()) expect_found(fault);
}

TEST(OpConformance, FaultsOfMeaningAreFound) {
  for (const OpFault& fault : faults_of_meaning()) expect_found(fault);
}

TEST(OpConformance, FloatsThatDoNotAssociateAreFoundAboveTheTolerance) {
  const CustomOp mean{"mean", false, each<float>([](float a, float b) { return (a + b) / 2; })};
  OpTrial trial{{DType::kFloat32}, {100}};
  ASSERT_EQ(faults_of(mean, trial).size(), 1u);
  EXPECT_NE(faults_of(mean, trial)[0].find("not associative"), std::string::npos);
  trial.tolerance = 2;
  EXPECT_TRUE(faults_of(mean, trial).empty());
}

}  // namespace
}  // namespace horo::tools
