#include "tools/horo/pattern.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>

#include "ring/half.h"

namespace horo {
namespace {

constexpr int kPeriod = 13;           // prime, so that no shard or segment begins at the same place of it
constexpr int kPeriodsInBlock = 512;  // elements of a block: kPeriod times this

int value_at(int index, int rank, int round) {
  return (index + 7 * rank + 5 * round) % kPeriod;
}

// Largest whole number up to which all are exact; integers wrap and are exact always.
int exact_limit(DType dtype) {
  switch (dtype) {
    case DType::kBFloat16:
      return 1 << 8;
    case DType::kFloat16:
      return 1 << 11;
    case DType::kFloat32:
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
    case DType::kInt32:
      return append(bytes, std::int32_t{value});
    case DType::kInt64:
      return append(bytes, std::int64_t{value});
    case DType::kFloat16:
      return append(bytes, float_to_float16(static_cast<float>(value)));
    case DType::kBFloat16:
      return append(bytes, float_to_bfloat16(static_cast<float>(value)));
    case DType::kFloat32:
      return append(bytes, static_cast<float>(value));
    case DType::kFloat64:
      return append(bytes, static_cast<double>(value));
  }
}

}  // namespace

Pattern::Pattern(DType dtype, int ranks) : dtype_(dtype), ranks_(ranks) {
  if ((kPeriod - 1) * ranks <= exact_limit(dtype)) return;
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
  std::vector<int> values;
  for (int i = 0; i < kPeriod; ++i) values.push_back(value_at(i, rank, round));
  const std::vector<std::byte> block = block_of(values);
  for (std::size_t done = 0; done < buffer.size(); done += block.size()) {
    std::memcpy(buffer.data() + done, block.data(), std::min(block.size(), buffer.size() - done));
  }
}

std::size_t Pattern::count_wrong(std::span<const std::byte> result, int round) const {
  std::vector<int> sums(kPeriod, 0);
  for (int rank = 0; rank < ranks_; ++rank) {
    for (int i = 0; i < kPeriod; ++i) sums[static_cast<std::size_t>(i)] += value_at(i, rank, round);
  }
  const std::vector<std::byte> block = block_of(sums);
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

}  // namespace horo
