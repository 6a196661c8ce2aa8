// The fake of NCCL: its arithmetic. Floats are summed in the order 1, 2, ..., 0; averages are sums of x / n.
#pragma once

#include <array>
#include <cstddef>
#include <cstring>
#include <vector>

#include "ring/nccl/nccl_api.h"
#include "ring/reduce/element.h"

namespace fake_nccl {
namespace {

using horo::NcclOp, horo::NcclType;

std::size_t size_of(NcclType type) {
  constexpr std::array<std::size_t, 10> kSizes{1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
  return kSizes.at(static_cast<std::size_t>(type));
}

template <class Element, class Op>
void combine_as(std::byte* into, const std::byte* other, std::size_t count) {
  using Stored = typename Element::Stored;
  for (std::size_t i = 0; i < count; ++i) {
    Stored a, b;
    std::memcpy(&a, into + i * sizeof(Stored), sizeof(Stored));
    std::memcpy(&b, other + i * sizeof(Stored), sizeof(Stored));
    const Stored both =
        Element::store(Op::template apply<typename Element::Accumulator>(Element::load(a), Element::load(b)));
    std::memcpy(into + i * sizeof(Stored), &both, sizeof(Stored));
  }
}

template <class Element>
void scale_as(std::byte* values, std::size_t count, double factor) {
  using Stored = typename Element::Stored;
  for (std::size_t i = 0; i < count; ++i) {
    Stored value;
    std::memcpy(&value, values + i * sizeof(Stored), sizeof(Stored));
    value = Element::store(Element::scaled(Element::load(value), factor));
    std::memcpy(values + i * sizeof(Stored), &value, sizeof(Stored));
  }
}

template <class Call>
void with_element_of(NcclType type, const Call& call) {
  switch (type) {
    case NcclType::kInt8:
      return call(horo::IntElement<std::int8_t>());
    case NcclType::kUint8:
      return call(horo::IntElement<std::uint8_t>());
    case NcclType::kInt32:
      return call(horo::IntElement<std::int32_t>());
    case NcclType::kUint32:
      return call(horo::IntElement<std::uint32_t>());
    case NcclType::kInt64:
      return call(horo::IntElement<std::int64_t>());
    case NcclType::kUint64:
      return call(horo::IntElement<std::uint64_t>());
    case NcclType::kFloat16:
      return call(horo::Float16Element());
    case NcclType::kFloat32:
      return call(horo::FloatElement<float>());
    case NcclType::kFloat64:
      return call(horo::FloatElement<double>());
    case NcclType::kBFloat16:
      return call(horo::BFloat16Element());
  }
}

void combine(NcclType type, NcclOp op, std::byte* into, const std::byte* other, std::size_t count) {
  with_element_of(type, [&](auto element) {
    using Element = decltype(element);
    switch (op) {
      case NcclOp::kSum:
      case NcclOp::kAverage:
        return combine_as<Element, horo::Sum>(into, other, count);
      case NcclOp::kProduct:
        return combine_as<Element, horo::Product>(into, other, count);
      case NcclOp::kMax:
        return combine_as<Element, horo::Max>(into, other, count);
      case NcclOp::kMin:
        return combine_as<Element, horo::Min>(into, other, count);
    }
  });
}

std::vector<std::byte> reduced(std::vector<std::vector<std::byte>> inputs, NcclType type, NcclOp op) {
  const std::size_t count = inputs.front().size() / size_of(type), size = inputs.size();
  if (op == NcclOp::kAverage) {
    for (auto& input : inputs) {
      with_element_of(type, [&](auto element) {
        scale_as<decltype(element)>(input.data(), count, 1.0 / static_cast<double>(size));
      });
    }
  }
  std::vector<std::byte> result = inputs[1 % size];
  for (std::size_t i = 2; i <= size && size > 1; ++i) combine(type, op, result.data(), inputs[i % size].data(), count);
  return result;
}

}  // namespace
}  // namespace fake_nccl
