// One table per enumeration: number, name and, for types, size stand in one line each.
#include "horo/base/types.h"

#include <span>

#include "horo/base/check.h"

namespace horo {
namespace {

template <class Enum>
struct Entry {
  Enum value;
  std::string_view name;
};

constexpr Entry<DType> kDTypes[] = {
    {DType::kUint8, "uint8"},     {DType::kInt8, "int8"},       {DType::kInt32, "int32"},
    {DType::kInt64, "int64"},     {DType::kFloat16, "float16"}, {DType::kFloat32, "float32"},
    {DType::kFloat64, "float64"}, {DType::kBool, "bool"},       {DType::kBFloat16, "bfloat16"},
};
constexpr Entry<ReduceOp> kOps[] = {
    {ReduceOp::kAverage, "average"}, {ReduceOp::kSum, "sum"},         {ReduceOp::kMin, "min"},
    {ReduceOp::kMax, "max"},         {ReduceOp::kProduct, "product"},
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
};
constexpr Entry<Order> kOrders[] = {{Order::kCanonical, "canonical"}, {Order::kFast, "fast"}};

template <class Enum>
std::string_view name_in(std::span<const Entry<Enum>> table, Enum value) {
  for (const auto& entry : table) {
    if (entry.value == value) return entry.name;
  }
  return "unknown";
}

template <class Enum>
std::optional<Enum> value_in(std::span<const Entry<Enum>> table, int number) {
  for (const auto& entry : table) {
    if (static_cast<int>(entry.value) == number) return entry.value;
  }
  return std::nullopt;
}

}  // namespace

std::size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::kUint8:
    case DType::kInt8:
    case DType::kBool:
      return 1;
    case DType::kFloat16:
    case DType::kBFloat16:
      return 2;
    case DType::kInt32:
    case DType::kFloat32:
      return 4;
    case DType::kInt64:
    case DType::kFloat64:
      return 8;
  }
  HORO_CHECK(!"size_of: a dtype outside the enumeration");
  return 0;
}

std::string_view name_of(DType dtype) {
  return name_in<DType>(kDTypes, dtype);
}
std::string_view name_of(ReduceOp op) {
  return name_in<ReduceOp>(kOps, op);
}
std::string_view name_of(CollectiveKind kind) {
  return name_in<CollectiveKind>(kKinds, kind);
}
std::string_view name_of(Order order) {
  return name_in<Order>(kOrders, order);
}

std::optional<DType> dtype_from(int number) {
  return value_in<DType>(kDTypes, number);
}
std::optional<ReduceOp> reduce_op_from(int number) {
  return value_in<ReduceOp>(kOps, number);
}
std::optional<CollectiveKind> collective_kind_from(int number) {
  return value_in<CollectiveKind>(kKinds, number);
}
std::optional<Order> order_from(int number) {
  return value_in<Order>(kOrders, number);
}

bool supports(DType dtype, ReduceOp op) {
  return !(dtype == DType::kBool && op == ReduceOp::kAverage);
}

}  // namespace horo
