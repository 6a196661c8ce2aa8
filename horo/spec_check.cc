#include "horo/spec_check.h"

#include <cmath>
#include <limits>
#include <stdexcept>

#include "horo/base/shard.h"

namespace horo {
namespace {

[[noreturn]] void refuse(const TensorSpec& spec, const std::string& why) {
  throw std::invalid_argument(std::string(name_of(spec.kind)) + " of tensor '" + spec.name.substr(0, 200) +
                              "': " + why);
}

void check_shape(const TensorSpec& spec, const Config& config) {
  if (spec.shape.size() > config.max_dims) {
    refuse(spec, std::to_string(spec.shape.size()) + " dimensions, at most " + std::to_string(config.max_dims) +
                     " are allowed (HORO_MAX_DIMS)");
  }
  std::uint64_t elements = 1;
  for (const std::int64_t dim : spec.shape) {
    if (dim < 0) refuse(spec, "a dimension is negative: " + std::to_string(dim));
    constexpr std::uint64_t kMost = std::numeric_limits<std::int64_t>::max() / 16;
    if (dim > 0 && elements > kMost / static_cast<std::uint64_t>(dim)) refuse(spec, "too many elements");
    elements *= static_cast<std::uint64_t>(dim);
  }
  const bool by_rows = spec.kind == CollectiveKind::kAllGather || spec.kind == CollectiveKind::kReduceScatter;
  if (by_rows && spec.shape.empty()) refuse(spec, "needs at least one dimension, this is a scalar");
  if (spec.kind == CollectiveKind::kBarrier && !spec.shape.empty()) refuse(spec, "a barrier has no shape");
}

void check_reduction(const TensorSpec& spec) {
  const bool reduces = spec.kind == CollectiveKind::kAllReduce || spec.kind == CollectiveKind::kReduceScatter;
  if (!reduces) return;
  if (!supports(spec.dtype, spec.op)) {
    refuse(spec, std::string(name_of(spec.op)) + " is not defined for " + std::string(name_of(spec.dtype)));
  }
  if (!std::isfinite(spec.prescale) || !std::isfinite(spec.postscale)) {
    refuse(spec, "prescale and postscale must be finite, they are " + std::to_string(spec.prescale) + " and " +
                     std::to_string(spec.postscale));
  }
}

// What a session agrees on and delivers; a Group runs more.
bool is_agreed(CollectiveKind kind) {
  return kind == CollectiveKind::kAllReduce || kind == CollectiveKind::kAllGather ||
         kind == CollectiveKind::kBroadcast || kind == CollectiveKind::kBarrier ||
         kind == CollectiveKind::kReduceScatter;
}

}  // namespace

void check_spec(const TensorSpec& spec, const Config& config) {
  if (spec.name.empty() && !spec.once) refuse(spec, "a tensor that is declared needs a name");
  if (spec.name.size() > config.max_name_bytes) {
    refuse(spec, "its name has " + std::to_string(spec.name.size()) + " bytes, at most " +
                     std::to_string(config.max_name_bytes) + " are allowed (HORO_MAX_NAME_BYTES)");
  }
  if (!is_agreed(spec.kind)) refuse(spec, "not yet: a session does not run this collective");
  if (spec.set != 0) refuse(spec, "process set " + std::to_string(spec.set) + " does not exist; 0 is the world");
  if (spec.channel != 0) refuse(spec, "channel " + std::to_string(spec.channel) + " does not exist; 0 is the only one");
  check_shape(spec, config);
  check_reduction(spec);
  if (spec.kind == CollectiveKind::kBroadcast && (spec.root < 0 || spec.root >= config.size)) {
    refuse(spec,
           "root " + std::to_string(spec.root) + " is not a rank of this world of " + std::to_string(config.size));
  }
  if (spec.stepwise && spec.kind != CollectiveKind::kAllReduce) refuse(spec, "only an all_reduce can be stepwise");
}

void check_buffers(const TensorSpec& spec, const Config& config, const void* in, const void* out, bool absent) {
  if (absent && spec.kind != CollectiveKind::kAllReduce) refuse(spec, "only an all_reduce can be absent on a rank");
  if (spec.kind == CollectiveKind::kAllGather && out != nullptr) {
    refuse(spec, "out must be null: the result belongs to the work");
  }
  if (spec.bytes() == 0 || spec.kind == CollectiveKind::kBarrier) return;
  if (in == nullptr && !absent) refuse(spec, "its input is a null pointer");
  if (out != nullptr || spec.kind == CollectiveKind::kAllGather) return;
  const bool no_rows = spec.kind == CollectiveKind::kReduceScatter &&
                       shard_of(static_cast<std::size_t>(spec.shape.front()), config.size, config.rank).size == 0;
  if (!no_rows) refuse(spec, "its output is a null pointer");
}

}  // namespace horo
