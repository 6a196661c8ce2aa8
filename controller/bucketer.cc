// One bucket is open for each combination of properties that tensors must share, so a tensor of another type in between
// does not end a bucket. A bucket that the next tensor does not fit into is closed for good: filling gaps would move
// late tensors to the front and early buckets to a later end.
#include "controller/bucketer.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <map>
#include <tuple>

namespace horo {
namespace {

// Scales by their bits: any double, NaN too, is a valid key then.
auto properties(const Fusible& tensor) {
  const TensorSpec& spec = *tensor.spec;
  return std::make_tuple(spec.set, tensor.ranks, spec.channel, spec.unit, spec.dtype, spec.op, spec.order,
                         std::bit_cast<std::uint64_t>(spec.prescale), std::bit_cast<std::uint64_t>(spec.postscale),
                         spec.codec);
}

struct OpenBucket {
  std::size_t index = 0;
  std::size_t bytes = 0;
  std::int32_t priority = 0;
  bool is_mixed = false;

  bool mixes(const TensorSpec& spec) const { return is_mixed || (spec.unit.empty() && spec.priority != priority); }
};

}  // namespace

std::vector<std::vector<std::size_t>> make_buckets(const std::vector<Fusible>& tensors, std::size_t bucket_bytes,
                                                   std::size_t mixed_bytes) {
  std::vector<std::vector<std::size_t>> buckets;
  std::map<decltype(properties(Fusible{})), OpenBucket> open;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const TensorSpec& spec = *tensors[i].spec;
    const std::size_t bytes = spec.bytes();
    const bool fusible = spec.kind == CollectiveKind::kAllReduce && spec.custom_op.empty();
    if (fusible && bucket_bytes > 0 && bytes <= bucket_bytes) {
      const auto found = open.find(properties(tensors[i]));
      if (found != open.end()) {
        OpenBucket& bucket = found->second;
        const bool mixes = bucket.mixes(spec);
        if (bucket.bytes + bytes <= (mixes ? std::min(mixed_bytes, bucket_bytes) : bucket_bytes)) {
          buckets[bucket.index].push_back(i);
          bucket.bytes += bytes;
          bucket.is_mixed = mixes;
          continue;
        }
      }
      open[properties(tensors[i])] = {buckets.size(), bytes, spec.priority, false};
    }
    buckets.push_back({i});
  }
  return buckets;
}

}  // namespace horo
