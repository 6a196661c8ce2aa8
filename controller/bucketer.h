// Bucketer: which tensors are reduced in one buffer. A pure function of the specs and their order.
#pragma once

#include <cstddef>
#include <vector>

#include "horo/base/tensor_spec.h"

namespace horo {

struct Fusible {
  const TensorSpec* spec = nullptr;
  std::vector<int> ranks = {};  // that take part; empty: the whole set
};

// The greatest size of a bucket in bytes. The tensors of a unit are released together in any case: `most` is the only
// limit of their buckets.
struct BucketLimits {
  std::size_t most = 0;  // 0: every tensor is a bucket by itself
  // Limit of a bucket whose tensors differ in priority. Half of the credit (flow.h): one bucket is on the wire while
  // the next is packed.
  std::size_t mixed = 0;
  // A bucket exceeds this only if it is at most 1 / kParts of all tensors that may share buckets: so the first bucket
  // starts early, and little data is left when the last tensor is ready.
  std::size_t least = 0;
  static constexpr std::size_t kParts = 16;
  bool by_round = false;  // the tensors of a bucket have one round stream
};

// Returns buckets of positions in `tensors`, ordered by their first positions; the tensors of a bucket keep their
// order. Only all_reduce tensors with equal set, ranks, channel, unit, type, op, order, scaling and codec share a
// bucket, within the limits. A larger tensor, or one with a custom operation (which may need whole tensors), is
// a bucket of its own.
std::vector<std::vector<std::size_t>> make_buckets(const std::vector<Fusible>& tensors, const BucketLimits& limits);

}  // namespace horo
