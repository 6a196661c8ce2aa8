#include "ring/nccl/nccl_types.h"

namespace horo {
namespace {

bool is_integer(NcclType type) {
  return type <= NcclType::kUint64;
}

}  // namespace

std::optional<NcclType> nccl_type(DType dtype) {
  switch (dtype) {
    case DType::kInt8:
      return NcclType::kInt8;
    case DType::kUint8:
      return NcclType::kUint8;
    case DType::kInt32:
      return NcclType::kInt32;
    case DType::kUint32:
      return NcclType::kUint32;
    case DType::kInt64:
      return NcclType::kInt64;
    case DType::kUint64:
      return NcclType::kUint64;
    case DType::kFloat16:
      return NcclType::kFloat16;
    case DType::kFloat32:
      return NcclType::kFloat32;
    case DType::kFloat64:
      return NcclType::kFloat64;
    case DType::kBFloat16:
      return NcclType::kBFloat16;
    default:
      return std::nullopt;
  }
}

// NCCL's minima and maxima of floats differ from horo's for NaN and for zeros of both signs.
std::optional<NcclOp> nccl_op(DType dtype, ReduceOp op, Order order) {
  const std::optional<NcclType> type = nccl_type(dtype);
  if (!type || (!is_integer(*type) && order != Order::kFast)) return std::nullopt;
  switch (op) {
    case ReduceOp::kSum:
      return NcclOp::kSum;
    case ReduceOp::kAverage:
      return is_integer(*type) ? std::nullopt : std::optional(NcclOp::kAverage);
    case ReduceOp::kProduct:
      return is_integer(*type) ? std::optional(NcclOp::kProduct) : std::nullopt;
    case ReduceOp::kMin:
      return is_integer(*type) ? std::optional(NcclOp::kMin) : std::nullopt;
    case ReduceOp::kMax:
      return is_integer(*type) ? std::optional(NcclOp::kMax) : std::nullopt;
    default:
      return std::nullopt;
  }
}

}  // namespace horo
