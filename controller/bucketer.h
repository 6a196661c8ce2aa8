// Bucketer: which tensors travel in one buffer. A pure function of the specs in their order.
#pragma once

#include <cstddef>
#include <vector>

#include "horo/base/tensor_spec.h"

namespace horo {

struct Fusible {
  const TensorSpec* spec = nullptr;
  std::vector<int> ranks = {};  // who takes part, where that is not the whole set
};

// Buckets of positions in `tensors`, in the order in which each bucket's first tensor stands there; the tensors of a
// bucket keep their order. Together are only all_reduce tensors of equal set, ranks, channel, unit, type, op, order,
// scaling and codec, up to bucket_bytes; a larger tensor, or one with a custom operation (which may need whole
// tensors), is a bucket by itself. 0: every tensor is.
// A bucket in which priorities differ has mixed_bytes at most, for it waits for the last of its tensors and goes before
// what is less urgent than the first; but a unit's tensors go together anyway.
std::vector<std::vector<std::size_t>> make_buckets(const std::vector<Fusible>& tensors, std::size_t bucket_bytes,
                                                   std::size_t mixed_bytes);

}  // namespace horo
