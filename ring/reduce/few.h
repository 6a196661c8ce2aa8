// Reductions of a few elements, one by one.
#pragma once

#include "ring/reduce/reduce.h"

namespace horo {

// The function that reduces a few elements of a regular tree one by one. Null if there are more elements, or if the
// tree is not regular.
TreeRun run_of_few(DType dtype, ReduceOp op, const TreeJob& job);

}  // namespace horo
