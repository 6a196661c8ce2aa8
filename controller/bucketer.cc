// One bucket is open for each combination of properties that the tensors of a bucket share, so a tensor of another type
// in between does not close a bucket. A bucket that the next tensor does not fit into is closed permanently: filling
// its gap with a later tensor would delay the bucket.
#include "controller/bucketer.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <map>
#include <tuple>

namespace horo {
namespace {

// Scales are compared by their bits, so that every double, NaN included, is a valid key.
auto properties(const Fusible& tensor, const BucketLimits& limits) {
  const TensorSpec& spec = *tensor.spec;
  return std::make_tuple(spec.set, tensor.ranks, spec.channel, spec.unit, spec.device, spec.dtype, spec.op, spec.order,
                         std::bit_cast<std::uint64_t>(spec.prescale), std::bit_cast<std::uint64_t>(spec.postscale),
                         spec.codec, limits.by_round ? spec.round_stream : 0);
}

// The tensors that may share a bucket, and the last bucket of them.
struct Kind {
  std::size_t all = 0;  // bytes of these tensors
  bool has_bucket = false;
  std::size_t index = 0;
  std::size_t bytes = 0;  // of the bucket
  std::int32_t priority = 0;
  bool is_mixed = false;

  bool mixes(const TensorSpec& spec) const { return is_mixed || (spec.unit.empty() && spec.priority != priority); }
};

std::size_t limit_of(const TensorSpec& spec, const Kind& kind, const BucketLimits& limits) {
  if (!spec.unit.empty()) return limits.most;
  const std::size_t part = std::min(limits.most, std::max(limits.least, kind.all / BucketLimits::kParts));
  return kind.mixes(spec) ? std::min(limits.mixed, part) : part;
}

bool is_fusible(const TensorSpec& spec, const BucketLimits& limits) {
  const bool may_be = spec.kind == CollectiveKind::kAllReduce && spec.custom_op.empty();
  return may_be && limits.most > 0 && spec.bytes() <= limits.most;
}

}  // namespace

std::vector<std::vector<std::size_t>> make_buckets(const std::vector<Fusible>& tensors, const BucketLimits& limits) {
  std::map<decltype(properties(Fusible{}, limits)), Kind> kinds;
  for (const Fusible& tensor : tensors) {
    if (is_fusible(*tensor.spec, limits)) kinds[properties(tensor, limits)].all += tensor.spec->bytes();
  }
  std::vector<std::vector<std::size_t>> buckets;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const TensorSpec& spec = *tensors[i].spec;
    if (!is_fusible(spec, limits)) {
      buckets.push_back({i});
      continue;
    }
    Kind& kind = kinds[properties(tensors[i], limits)];
    if (kind.has_bucket && kind.bytes + spec.bytes() <= limit_of(spec, kind, limits)) {
      buckets[kind.index].push_back(i);
      kind.is_mixed = kind.mixes(spec);
      kind.bytes += spec.bytes();
    } else {
      kind = {kind.all, true, buckets.size(), spec.bytes(), spec.priority, false};
      buckets.push_back({i});
    }
  }
  return buckets;
}

}  // namespace horo
