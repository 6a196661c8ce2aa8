// Bucketer: which tensors travel in one buffer. A pure function of the specs in their order.
#pragma once

#include <cstddef>
#include <vector>

#include "horo/base/tensor_spec.h"

namespace horo {

// Buckets of positions in `tensors`, in the order in which each bucket's first tensor stands there; the tensors of a
// bucket keep their order. Together are only all_reduce tensors of equal set, channel, type, op, order and scaling, up
// to bucket_bytes; a larger tensor is a bucket by itself. 0: every tensor is.
std::vector<std::vector<std::size_t>> make_buckets(const std::vector<const TensorSpec*>& tensors,
                                                   std::size_t bucket_bytes);

}  // namespace horo
