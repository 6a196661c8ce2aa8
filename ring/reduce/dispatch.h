// From the values DType, ReduceOp and number of inputs to types. Internal linkage, for the reasons given in element.h.
#pragma once

#include <type_traits>

#include "horo/base/check.h"
#include "horo/base/types.h"
#include "ring/reduce/element.h"

namespace horo {
namespace {

// Calls f with a value of the element type.
template <class F>
void with_element(DType dtype, F f) {
  switch (dtype) {
    case DType::kUint8:
      return f(IntElement<std::uint8_t>{});
    case DType::kInt8:
      return f(IntElement<std::int8_t>{});
    case DType::kUint16:
      return f(IntElement<std::uint16_t>{});
    case DType::kInt16:
      return f(IntElement<std::int16_t>{});
    case DType::kUint32:
      return f(IntElement<std::uint32_t>{});
    case DType::kInt32:
      return f(IntElement<std::int32_t>{});
    case DType::kUint64:
      return f(IntElement<std::uint64_t>{});
    case DType::kInt64:
      return f(IntElement<std::int64_t>{});
    case DType::kFloat16:
      return f(Float16Element{});
    case DType::kFloat32:
      return f(FloatElement<float>{});
    case DType::kFloat64:
      return f(FloatElement<double>{});
    case DType::kBool:
      return f(BoolElement{});
    case DType::kBFloat16:
      return f(BFloat16Element{});
    case DType::kFloat8E4m3:
      return f(Float8E4m3Element{});
    case DType::kFloat8E5m2:
      return f(Float8E5m2Element{});
    case DType::kComplex64:
      return f(ComplexElement<float>{});
    case DType::kComplex128:
      return f(ComplexElement<double>{});
  }
  HORO_CHECK(!"a known element type");
}

template <class F>
void with_op(ReduceOp op, F f) {
  switch (op) {
    case ReduceOp::kAverage:
    case ReduceOp::kSum:
      return f(Sum{});
    case ReduceOp::kMin:
      return f(Min{});
    case ReduceOp::kMax:
      return f(Max{});
    case ReduceOp::kProduct:
      return f(Product{});
    case ReduceOp::kBitAnd:
      return f(BitAnd{});
    case ReduceOp::kBitOr:
      return f(BitOr{});
    case ReduceOp::kBitXor:
      return f(BitXor{});
    case ReduceOp::kAdasum:
    case ReduceOp::kCustom:
      break;
  }
  HORO_CHECK(!"a known operation");
}

// Calls f with the number of inputs, which is that of a regular tree, as a std::integral_constant.
template <class F>
void with_inputs(int inputs, F f) {
  if (inputs == 2) return f(std::integral_constant<int, 2>{});
  if (inputs == 3) return f(std::integral_constant<int, 3>{});
  if (inputs == 4) return f(std::integral_constant<int, 4>{});
  return f(std::integral_constant<int, 8>{});
}

// All operations but minimum and maximum treat signed and unsigned integers alike: one loop serves both.
template <class Op, class T>
struct Alike {
  using Type = T;
};
template <class Op, class Int>
requires(std::is_integral_v<Int> && !std::is_same_v<Int, bool> && !std::is_same_v<Op, Min> &&
         !std::is_same_v<Op, Max>) struct Alike<Op, Int> {
  using Type = std::make_unsigned_t<Int>;
};
template <class Op, class Int>
struct Alike<Op, IntElement<Int>> {
  using Type = IntElement<typename Alike<Op, Int>::Type>;
};

template <class Element>
typename Element::Stored stored_at(const std::byte* data, std::size_t i) {
  typename Element::Stored value;
  std::memcpy(&value, data + i * sizeof(value), sizeof(value));
  return value;
}

}  // namespace
}  // namespace horo
