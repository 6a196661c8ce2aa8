// What horo's types and operations are in NCCL.
#pragma once

#include <optional>

#include "horo/base/types.h"
#include "ring/nccl/nccl_api.h"

namespace horo {

// Nothing: NCCL has no such type.
std::optional<NcclType> nccl_type(DType dtype);
// The operation whose result is that of horo's, in this order: of floats only sums and averages in any order. Nothing:
// NCCL has none.
std::optional<NcclOp> nccl_op(DType dtype, ReduceOp op, Order order);

}  // namespace horo
