#include "tools/horo/bench/pattern.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <string>

#include "ring/reduce/float8.h"
#include "ring/reduce/half.h"

namespace horo::tools {
namespace {

constexpr int kPeriod = static_cast<int>(Pattern::kPeriod);
constexpr int kPeriodsInBlock = 512;  // elements of a block: kPeriod times this

bool is_eighth(DType dtype) {
  return dtype == DType::kFloat8E4m3 || dtype == DType::kFloat8E5m2;
}

// The largest value of an input. 8-bit floats have few exact whole numbers, so their inputs are 0 and 1.
int largest(DType dtype) {
  return is_eighth(dtype) ? 1 : kPeriod - 1;
}

int value_at(DType dtype, int index, int rank, int round) {
  return (index + 7 * rank + 5 * round) % kPeriod % (largest(dtype) + 1);
}

std::vector<int> values_of(DType dtype, int rank, int round) {
  std::vector<int> values;
  for (int i = 0; i < kPeriod; ++i) values.push_back(value_at(dtype, i, rank, round));
  return values;
}

// The largest whole number up to which all are exact. Integers wrap, so they are always exact.
int exact_limit(DType dtype) {
  switch (dtype) {
    case DType::kFloat8E4m3:
      return 1 << 4;
    case DType::kFloat8E5m2:
      return 1 << 3;
    case DType::kBFloat16:
      return 1 << 8;
    case DType::kFloat16:
      return 1 << 11;
    case DType::kFloat32:
    case DType::kComplex64:
      return 1 << 24;
    case DType::kBool:
      return 0;
    default:
      return 1 << 30;
  }
}

template <class Element>
void append(std::vector<std::byte>& bytes, Element element) {
  const auto* begin = reinterpret_cast<const std::byte*>(&element);
  bytes.insert(bytes.end(), begin, begin + sizeof(element));
}

void append_as(std::vector<std::byte>& bytes, DType dtype, int value) {
  switch (dtype) {
    case DType::kUint8:
    case DType::kInt8:
    case DType::kBool:
      return append(bytes, static_cast<std::uint8_t>(value));
    case DType::kUint16:
    case DType::kInt16:
      return append(bytes, static_cast<std::uint16_t>(value));
    case DType::kUint32:
    case DType::kInt32:
      return append(bytes, std::int32_t{value});
    case DType::kUint64:
    case DType::kInt64:
      return append(bytes, std::int64_t{value});
    case DType::kFloat8E4m3:
      return append(bytes, float_to_float8_e4m3(static_cast<float>(value)));
    case DType::kFloat8E5m2:
      return append(bytes, float_to_float8_e5m2(static_cast<float>(value)));
    case DType::kFloat16:
      return append(bytes, float_to_float16(static_cast<float>(value)));
    case DType::kBFloat16:
      return append(bytes, float_to_bfloat16(static_cast<float>(value)));
    case DType::kFloat32:
      return append(bytes, static_cast<float>(value));
    case DType::kFloat64:
      return append(bytes, static_cast<double>(value));
    case DType::kComplex64:
      append(bytes, static_cast<float>(value));
      return append(bytes, static_cast<float>(2 * value));
    case DType::kComplex128:
      append(bytes, static_cast<double>(value));
      return append(bytes, static_cast<double>(2 * value));
  }
}

}  // namespace

Pattern::Pattern(DType dtype, int ranks) : dtype_(dtype), ranks_(ranks) {
  if (largest(dtype) * ranks <= exact_limit(dtype)) return;
  throw std::invalid_argument("--dtype " + std::string(name_of(dtype)) + ": its sums over " + std::to_string(ranks) +
                              " ranks cannot be checked; expected a wider type or fewer ranks");
}

std::vector<std::byte> Pattern::block_of(const std::vector<int>& values) const {
  std::vector<std::byte> block;
  for (int period = 0; period < kPeriodsInBlock; ++period) {
    for (const int value : values) append_as(block, dtype_, value);
  }
  return block;
}

void Pattern::fill(std::span<std::byte> buffer, int rank, int round) const {
  const std::vector<std::byte> block = block_of(values_of(dtype_, rank, round));
  for (std::size_t done = 0; done < buffer.size(); done += block.size()) {
    std::memcpy(buffer.data() + done, block.data(), std::min(block.size(), buffer.size() - done));
  }
}

std::size_t Pattern::count_wrong(std::span<const std::byte> result, int round) const {
  std::vector<int> sums(kPeriod, 0);
  for (int rank = 0; rank < ranks_; ++rank) {
    const std::vector<int> values = values_of(dtype_, rank, round);
    std::transform(sums.begin(), sums.end(), values.begin(), sums.begin(), std::plus<>());
  }
  return count_other(result, sums);
}

std::size_t Pattern::count_wrong_copy(std::span<const std::byte> result, int rank, int round) const {
  return count_other(result, values_of(dtype_, rank, round));
}

std::size_t Pattern::count_other(std::span<const std::byte> result, const std::vector<int>& values) const {
  const std::vector<std::byte> block = block_of(values);
  const std::size_t element = size_of(dtype_);
  std::size_t wrong = 0;
  for (std::size_t done = 0; done < result.size(); done += block.size()) {
    const std::size_t bytes = std::min(block.size(), result.size() - done);
    if (std::memcmp(result.data() + done, block.data(), bytes) == 0) continue;
    for (std::size_t at = 0; at < bytes; at += element) {
      wrong += std::memcmp(result.data() + done + at, block.data() + at, element) != 0 ? 1 : 0;
    }
  }
  return wrong;
}

}  // namespace horo::tools
