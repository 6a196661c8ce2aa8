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

// How many bytes a bucket has at most. A unit's tensors go together anyway: `most` is the only limit of their buckets.
struct BucketLimits {
  std::size_t most = 0;  // 0: every tensor is a bucket by itself
  // Diagnose priorities differ: such a bucket waits for the last of its tensors, and goes before what is less urgent
  // than the first.
  std::size_t mixed = 0;
  // More than this only where like tensors fill kParts buckets: so the first one leaves soon, and little is left to do
  // once the last tensor is ready.
  std::size_t least = 0;
  static constexpr std::size_t kParts = 16;
};

// Buckets of positions in `tensors`, in the order in which each bucket's first tensor stands there; the tensors of a
// bucket keep their order. Together are only all_reduce tensors of equal set, ranks, channel, unit, type, op, order,
// scaling and codec, within the limits; a larger tensor, or one with a custom operation (which may need whole tensors),
// is a bucket by itself.
std::vector<std::vector<std::size_t>> make_buckets(const std::vector<Fusible>& tensors, const BucketLimits& limits);

}  // namespace horo
