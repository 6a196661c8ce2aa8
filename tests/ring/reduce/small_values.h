// Small elements of any type, so that no sum is a NaN or overflows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "horo/base/types.h"

namespace horo::test {

template <class Random>
void put_small(std::byte* at, DType dtype, Random& random) {
  const auto put = [at](auto value) { std::memcpy(at, &value, sizeof(value)); };
  const int small = static_cast<int>(random() % 7);
  switch (dtype) {
    case DType::kFloat32:
      return put(static_cast<float>(small) + static_cast<float>(random() % 1000) / 999.f);
    case DType::kFloat64:
      return put(small + static_cast<double>(random() % 1000) / 999.0);
    case DType::kComplex64:
      put(static_cast<float>(small) / 3.f), std::memcpy(at + 4, at, 4);
      return;
    case DType::kFloat16:
      return put(static_cast<std::uint16_t>(0x3800 + random() % 0x800));
    case DType::kBFloat16:
      return put(static_cast<std::uint16_t>(0x3f00 + random() % 0x80));
    case DType::kInt32:
      return put(static_cast<std::int32_t>(small));
    case DType::kInt64:
      return put(static_cast<std::int64_t>(small));
    case DType::kBool:
      return put(static_cast<std::uint8_t>(small & 1));
    default:
      return put(static_cast<std::uint8_t>(small));
  }
}

inline std::vector<std::byte> small_values(DType dtype, std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::byte> bytes(count * size_of(dtype));
  for (std::size_t i = 0; i < count; ++i) put_small(bytes.data() + i * size_of(dtype), dtype, random);
  return bytes;
}

}  // namespace horo::test
