// What a caller may declare and hand in: checked at the call, before anything is queued.
#pragma once

#include "horo/base/config.h"
#include "horo/base/tensor_spec.h"

namespace horo {

// Throws std::invalid_argument naming the tensor, what is wrong and what would be right.
void check_spec(const TensorSpec& spec, const Config& config);

// The same for the buffers of one submission.
void check_buffers(const TensorSpec& spec, const Config& config, const void* in, const void* out, bool absent);

}  // namespace horo
