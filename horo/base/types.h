// Element types, operations and kinds of collectives. The numbers are part of the C ABI and of the wire format and
// never change; gaps are left for later types and operations.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "horo/base/check.h"

namespace horo {

enum class DType : std::uint8_t {
  kUint8 = 0,
  kInt8 = 1,
  kUint16 = 2,
  kInt16 = 3,
  kInt32 = 4,
  kInt64 = 5,
  kFloat16 = 6,
  kFloat32 = 7,
  kFloat64 = 8,
  kBool = 9,
  kBFloat16 = 10,
  kFloat8E4m3 = 11,  // 4 bits of exponent, 3 of mantissa; no infinity ("e4m3fn"): larger values become +-448
  kFloat8E5m2 = 12,  // 5 bits of exponent, 2 of mantissa: a truncated float16
  kUint32 = 13,
  kUint64 = 14,
  kComplex64 = 15,  // two float32, the real part first
  kComplex128 = 16,
};

enum class ReduceOp : std::uint8_t {
  kAverage = 0,
  kSum = 1,
  kAdasum = 2,  // ring/group/adasum.h
  kMin = 3,
  kMax = 4,
  kProduct = 5,
  kBitAnd = 6,
  kBitOr = 7,
  kBitXor = 8,
  kCustom = 9,  // the user's own (ring/reduce/custom_op.h)
};

enum class CollectiveKind : std::uint8_t {
  kAllReduce = 0,
  kAllGather = 1,
  kBroadcast = 2,
  kAllToAll = 4,
  kBarrier = 5,
  kReduceScatter = 6,
  kReduce = 7,
  kGather = 8,
  kScatter = 9,
  kSendRecv = 10,   // between two members, by name
  kAddSet = 11,     // agreed on like a collective, without data: a new process set,
  kRemoveSet = 12,  //   the end of one,
  kJoin = 13,       //   "I have no more data",
  kRebuild = 14,    //   and the end of an epoch of the world
};

// Whose memory a tensor is.
enum class DeviceType : std::uint8_t { kHost = 0, kCuda = 1 };

// kCanonical: the result depends on the contributor ids alone (docs/canonical_order.md). kFast: any order of summation.
enum class Order : std::uint8_t { kCanonical = 0, kFast = 1 };

// The bytes of an element, by number of the type; 0: not an element type.
extern const std::array<std::uint8_t, 256> kElementBytes;

// Bytes of one element.
inline std::size_t size_of(DType dtype) {
  const std::size_t bytes = kElementBytes[static_cast<std::uint8_t>(dtype)];
  HORO_CHECK(bytes > 0);
  return bytes;
}

// "float32", "sum", "all_reduce", "canonical": as in logs, errors, counters and Python.
std::string_view name_of(DType dtype);
std::string_view name_of(ReduceOp op);
std::string_view name_of(CollectiveKind kind);
std::string_view name_of(Order order);
std::string_view name_of(DeviceType device);

// The value with that number, or nullopt: converts numbers from the wire or a C caller.
std::optional<DType> dtype_from(int number);
std::optional<ReduceOp> reduce_op_from(int number);
std::optional<CollectiveKind> collective_kind_from(int number);
std::optional<Order> order_from(int number);
std::optional<DeviceType> device_type_from(int number);

// True where the op is defined for the type: all are, except the average of bools, minima and maxima of complex
// numbers, bitwise operations on types other than integers and bools, and Adasum on types other than 16-, 32- and
// 64-bit floats. A user's operation receives the type and decides itself.
bool supports(DType dtype, ReduceOp op);

// Signed and unsigned integers; not bool.
bool is_integer(DType dtype);
bool is_complex(DType dtype);

}  // namespace horo
