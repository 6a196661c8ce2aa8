// One table per enumeration: number, name and, for types, size in one line each.
#include "horo/base/types.h"

#include <array>

#include "horo/base/check.h"

namespace horo {
namespace {

template <class Enum>
struct Entry {
  Enum value;
  std::string_view name;
};

struct Type {
  DType value;
  std::string_view name;
  std::size_t bytes;
};

constexpr Type kDTypes[] = {
    {DType::kUint8, "uint8", 1},
    {DType::kInt8, "int8", 1},
    {DType::kUint16, "uint16", 2},
    {DType::kInt16, "int16", 2},
    {DType::kInt32, "int32", 4},
    {DType::kInt64, "int64", 8},
    {DType::kFloat16, "float16", 2},
    {DType::kFloat32, "float32", 4},
    {DType::kFloat64, "float64", 8},
    {DType::kBool, "bool", 1},
    {DType::kBFloat16, "bfloat16", 2},
    {DType::kFloat8E4m3, "float8_e4m3", 1},
    {DType::kFloat8E5m2, "float8_e5m2", 1},
    {DType::kUint32, "uint32", 4},
    {DType::kUint64, "uint64", 8},
    {DType::kComplex64, "complex64", 8},
    {DType::kComplex128, "complex128", 16},
};
constexpr Entry<ReduceOp> kOps[] = {
    {ReduceOp::kAverage, "average"}, {ReduceOp::kSum, "sum"},      {ReduceOp::kAdasum, "adasum"},
    {ReduceOp::kMin, "min"},         {ReduceOp::kMax, "max"},      {ReduceOp::kProduct, "product"},
    {ReduceOp::kBitAnd, "bit_and"},  {ReduceOp::kBitOr, "bit_or"}, {ReduceOp::kBitXor, "bit_xor"},
    {ReduceOp::kCustom, "custom"},
};
constexpr Entry<CollectiveKind> kKinds[] = {
    {CollectiveKind::kAllReduce, "all_reduce"},
    {CollectiveKind::kAllGather, "all_gather"},
    {CollectiveKind::kBroadcast, "broadcast"},
    {CollectiveKind::kBarrier, "barrier"},
    {CollectiveKind::kReduceScatter, "reduce_scatter"},
    {CollectiveKind::kAllToAll, "all_to_all"},
    {CollectiveKind::kReduce, "reduce"},
    {CollectiveKind::kGather, "gather"},
    {CollectiveKind::kScatter, "scatter"},
    {CollectiveKind::kSendRecv, "send_recv"},
    {CollectiveKind::kAddSet, "add_process_set"},
    {CollectiveKind::kRemoveSet, "remove_process_set"},
    {CollectiveKind::kJoin, "join"},
    {CollectiveKind::kRebuild, "rebuild"},
};
constexpr Entry<Order> kOrders[] = {{Order::kCanonical, "canonical"}, {Order::kFast, "fast"}};
constexpr Entry<DeviceType> kDevices[] = {{DeviceType::kHost, "cpu"}, {DeviceType::kCuda, "cuda"}};

template <class Table, class Enum>
std::string_view name_in(const Table& table, Enum value) {
  for (const auto& entry : table) {
    if (entry.value == value) return entry.name;
  }
  return "unknown";
}

template <class Table>
auto value_in(const Table& table, int number) -> std::optional<decltype(table[0].value)> {
  for (const auto& entry : table) {
    if (static_cast<int>(entry.value) == number) return entry.value;
  }
  return std::nullopt;
}

}  // namespace

constexpr std::array<std::uint8_t, 256> kElementBytes = [] {
  std::array<std::uint8_t, 256> sizes{};
  for (const Type& type : kDTypes) sizes[static_cast<std::uint8_t>(type.value)] = static_cast<std::uint8_t>(type.bytes);
  return sizes;
}();

std::string_view name_of(DType dtype) {
  return name_in(kDTypes, dtype);
}
std::string_view name_of(ReduceOp op) {
  return name_in(kOps, op);
}
std::string_view name_of(CollectiveKind kind) {
  return name_in(kKinds, kind);
}
std::string_view name_of(Order order) {
  return name_in(kOrders, order);
}
std::string_view name_of(DeviceType device) {
  return name_in(kDevices, device);
}

std::optional<DType> dtype_from(int number) {
  return value_in(kDTypes, number);
}
std::optional<ReduceOp> reduce_op_from(int number) {
  return value_in(kOps, number);
}
std::optional<CollectiveKind> collective_kind_from(int number) {
  return value_in(kKinds, number);
}
std::optional<Order> order_from(int number) {
  return value_in(kOrders, number);
}
std::optional<DeviceType> device_type_from(int number) {
  return value_in(kDevices, number);
}

bool is_integer(DType dtype) {
  switch (dtype) {
    case DType::kUint8:
    case DType::kInt8:
    case DType::kUint16:
    case DType::kInt16:
    case DType::kInt32:
    case DType::kInt64:
    case DType::kUint32:
    case DType::kUint64:
      return true;
    default:
      return false;
  }
}

bool is_complex(DType dtype) {
  return dtype == DType::kComplex64 || dtype == DType::kComplex128;
}

bool supports(DType dtype, ReduceOp op) {
  switch (op) {
    case ReduceOp::kAverage:
      return dtype != DType::kBool;
    case ReduceOp::kMin:
    case ReduceOp::kMax:
      return !is_complex(dtype);
    case ReduceOp::kBitAnd:
    case ReduceOp::kBitOr:
    case ReduceOp::kBitXor:
      return is_integer(dtype) || dtype == DType::kBool;
    case ReduceOp::kAdasum:
      return dtype == DType::kFloat16 || dtype == DType::kBFloat16 || dtype == DType::kFloat32 ||
             dtype == DType::kFloat64;
    default:
      return true;
  }
}

}  // namespace horo
