#include "horo/tensors/spec_check.h"

#include <cmath>
#include <limits>
#include <stdexcept>

#include "horo/base/shard.h"
#include "horo/tensors/submission.h"

namespace horo {
namespace {

class SpecCheck {
 public:
  SpecCheck(const TensorSpec& spec, const SetInfo& set) : spec_(spec), set_(set) {}

  [[noreturn]] void refuse(const std::string& why) const {
    throw std::invalid_argument(subject_of(spec_, set_) + ": " + why);
  }

  void name(const Config& config) const {
    if (spec_.name.empty() && !spec_.once) refuse("a tensor that is declared needs a name");
    if (spec_.name.size() > config.max_name_bytes) {
      refuse("its name has " + std::to_string(spec_.name.size()) + " bytes, at most " +
             std::to_string(config.max_name_bytes) + " are allowed (HORO_MAX_NAME_BYTES)");
    }
  }

  void kind() const {
    if (spec_.kind == CollectiveKind::kAddSet || spec_.kind == CollectiveKind::kRemoveSet ||
        spec_.kind == CollectiveKind::kJoin || spec_.kind == CollectiveKind::kRebuild) {
      refuse("it is no tensor's collective: call add_set, remove_set, join or rebuild");
    }
    if (spec_.channel != 0) {
      refuse("channel " + std::to_string(spec_.channel) + " does not exist; 0 is the only one");
    }
    if (spec_.stepwise && spec_.kind != CollectiveKind::kAllReduce) refuse("only an all_reduce can be stepwise");
    const bool may_be_of_round = (spec_.stepwise || spec_.kind == CollectiveKind::kBarrier) && !spec_.once;
    if (spec_.round_stream != 0 && !may_be_of_round) {
      refuse("only a stepwise all_reduce, or a barrier, with a name can have a round stream");
    }
  }

  void shape(const Config& config) const {
    if (spec_.shape.size() > config.max_dims) {
      refuse(std::to_string(spec_.shape.size()) + " dimensions, at most " + std::to_string(config.max_dims) +
             " are allowed (HORO_MAX_DIMS)");
    }
    std::uint64_t elements = 1;
    for (const std::int64_t dim : spec_.shape) {
      if (dim < 0) refuse("a dimension is negative: " + std::to_string(dim));
      constexpr std::uint64_t kMost = std::numeric_limits<std::int64_t>::max() / 16;
      if (dim > 0 && elements > kMost / static_cast<std::uint64_t>(dim)) refuse("too many elements");
      elements *= static_cast<std::uint64_t>(dim);
    }
    const bool by_rows = has_varying_result(spec_.kind) || spec_.kind == CollectiveKind::kReduceScatter;
    if (by_rows && spec_.shape.empty()) refuse("needs at least one dimension, this is a scalar");
    if (spec_.kind == CollectiveKind::kBarrier && !spec_.shape.empty()) refuse("a barrier has no shape");
    if (spec_.kind == CollectiveKind::kBarrier && spec_.device != DeviceType::kHost) refuse("a barrier has no device");
  }

  void roots() const {
    switch (spec_.kind) {
      case CollectiveKind::kBroadcast:
      case CollectiveKind::kReduce:
      case CollectiveKind::kGather:
      case CollectiveKind::kScatter:
        return member("root", spec_.root);
      case CollectiveKind::kSendRecv:
        return pair();
      default:
        return;
    }
  }

  void reduction(const Registry& registry, bool is_elastic) const {
    const bool reduces = spec_.kind == CollectiveKind::kAllReduce || spec_.kind == CollectiveKind::kReduceScatter ||
                         spec_.kind == CollectiveKind::kReduce;
    if (!spec_.custom_op.empty() && spec_.op != ReduceOp::kCustom) {
      refuse("operation '" + spec_.custom_op + "' beside " + std::string(name_of(spec_.op)));
    }
    if (!reduces && !spec_.codec.empty()) refuse("only an all_reduce can have a codec");
    if (!reduces) return;
    if (!supports(spec_.dtype, spec_.op)) {
      refuse(std::string(name_of(spec_.op)) + " is not defined for " + std::string(name_of(spec_.dtype)));
    }
    if (spec_.op == ReduceOp::kAdasum && spec_.kind != CollectiveKind::kAllReduce) {
      refuse("only an all_reduce can have the operation adasum");
    }
    if (!std::isfinite(spec_.prescale) || !std::isfinite(spec_.postscale)) {
      refuse("prescale and postscale must be finite, they are " + std::to_string(spec_.prescale) + " and " +
             std::to_string(spec_.postscale));
    }
    if (spec_.op == ReduceOp::kCustom) custom(registry);
    if (!spec_.codec.empty()) codec(registry, is_elastic);
  }

  // Whether the memory is on the device of the spec.
  void device(const Submission& submission) const {
    const bool is_on_host = spec_.device == DeviceType::kHost;
    if (is_on_host != (submission.ready == nullptr)) {
      refuse(is_on_host ? "it is declared on the CPU, and its memory is on a device"
                        : "it is declared on a device, and its memory on the CPU");
    }
  }

  // The splits of the spec, and what they are for.
  void counts() const {
    if (spec_.counts_known && !has_varying_result(spec_.kind)) {
      refuse("counts_known is for all_gather, gather, all_to_all and scatter");
    }
    const bool gathers = spec_.kind == CollectiveKind::kAllGather || spec_.kind == CollectiveKind::kGather;
    if (!gathers || spec_.splits.empty()) return splits(spec_.splits, spec_.kind == CollectiveKind::kReduceScatter);
    if (!spec_.counts_known) refuse("the splits of its spec are the rows from each member with counts_known alone");
    one_for_each(spec_.splits);
    const std::int64_t own = spec_.splits[static_cast<std::size_t>(set_.rank)];
    if (own == spec_.shape.front()) return;
    refuse("the splits have " + std::to_string(own) + " rows from this rank, the tensor has " +
           std::to_string(spec_.shape.front()));
  }

  void splits(const std::vector<std::int64_t>& splits, bool allowed) const {
    if (splits.empty()) return;
    if (!allowed) refuse("splits are for reduce_scatter, all_to_all and the root of a scatter");
    one_for_each(splits);
    std::int64_t left = spec_.shape.front();
    for (const std::int64_t rows : splits) {
      if (rows > left) refuse("the splits have more rows than the tensor's " + std::to_string(spec_.shape.front()));
      left -= rows;
    }
    if (left > 0) {
      refuse("the splits leave " + std::to_string(left) + " of the tensor's " + std::to_string(spec_.shape.front()) +
             " rows unassigned");
    }
  }

 private:
  void one_for_each(const std::vector<std::int64_t>& splits) const {
    if (splits.size() != static_cast<std::size_t>(set_.size())) {
      refuse(std::to_string(splits.size()) + " splits, expected one for each of " + std::to_string(set_.size()) +
             " ranks");
    }
    for (const std::int64_t rows : splits) {
      if (rows < 0) refuse("a split is negative: " + std::to_string(rows));
    }
  }

  void custom(const Registry& registry) const {
    try {
      registry.op(spec_.custom_op);
    } catch (const std::invalid_argument& e) {
      refuse(e.what());
    }
    if (spec_.prescale != 1.0 || spec_.postscale != 1.0) refuse("an operation of your own is not scaled");
  }

  void codec(const Registry& registry, bool is_elastic) const {
    try {
      const bool has_residuals = registry.codecs().get(spec_.codec).stateful();
      if (is_elastic && has_residuals) refuse_residuals();
    } catch (const std::invalid_argument& e) {
      refuse(e.what());
    }
    if (can_be_coded(spec_.kind, spec_.op, spec_.dtype)) return;
    refuse("codec '" + spec_.codec + "' is for the sum or average of an all_reduce of float32, float64, float16 or " +
           "bfloat16, not for " + std::string(name_of(spec_.op)) + " of " + std::string(name_of(spec_.dtype)));
  }

  [[noreturn]] void refuse_residuals() const {
    refuse("codec '" + spec_.codec + "' in an elastic job: its residuals would not survive a round that runs again; " +
           "use a codec without residuals or none, or start the job without --min-np");
  }

  void member(const char* what, int rank) const {
    if (rank >= 0 && rank < set_.size()) return;
    refuse(std::string(what) + " " + std::to_string(rank) + " is not a rank of " +
           (set_.number == 0 ? "this world" : describe(set_)) + " of " + std::to_string(set_.size()));
  }

  void pair() const {
    member("sender", spec_.root);
    member("receiver", spec_.peer);
    if (spec_.root == spec_.peer) refuse("rank " + std::to_string(spec_.root) + " would send to itself");
    if (set_.rank == spec_.root || set_.rank == spec_.peer) return;
    refuse("rank " + std::to_string(set_.rank) + " is neither its sender, rank " + std::to_string(spec_.root) +
           ", nor its receiver, rank " + std::to_string(spec_.peer));
  }

  const TensorSpec& spec_;
  const SetInfo& set_;
};

bool reads_in(const TensorSpec& spec, const SetInfo& set) {
  const bool from_root = spec.kind == CollectiveKind::kBroadcast || spec.kind == CollectiveKind::kScatter ||
                         spec.kind == CollectiveKind::kSendRecv;
  return !from_root || set.rank == spec.root;
}

bool writes_out(const TensorSpec& spec, const SetInfo& set) {
  if (has_varying_result(spec.kind)) return false;  // null is valid too
  if (spec.kind == CollectiveKind::kReduce) return set.rank == spec.root;
  if (spec.kind == CollectiveKind::kSendRecv) return set.rank == spec.peer;
  if (spec.kind != CollectiveKind::kReduceScatter) return true;
  const auto rows = rows_for_each(spec.splits, spec.shape.front(), set.size());
  return rows[static_cast<std::size_t>(set.rank)] > 0;
}

}  // namespace

std::string subject_of(const TensorSpec& spec, const SetInfo& set) {
  const std::string where = set.number == 0 ? "" : " of " + describe(set);
  return std::string(name_of(spec.kind)) + " of tensor '" + spec.name.substr(0, 200) + "'" + where;
}

bool has_varying_result(CollectiveKind kind) {
  return kind == CollectiveKind::kAllGather || kind == CollectiveKind::kGather || kind == CollectiveKind::kAllToAll ||
         kind == CollectiveKind::kScatter;
}

std::size_t row_elements(const TensorSpec& spec) {
  std::size_t elements = 1;
  for (std::size_t i = 1; i < spec.shape.size(); ++i) elements *= static_cast<std::size_t>(spec.shape[i]);
  return elements;
}

std::vector<std::int64_t> rows_for_each(const std::vector<std::int64_t>& splits, std::int64_t rows, int members) {
  if (!splits.empty()) return splits;
  std::vector<std::int64_t> even;
  for (int i = 0; i < members; ++i) {
    even.push_back(static_cast<std::int64_t>(shard_of(static_cast<std::size_t>(rows), members, i).size));
  }
  return even;
}

void check_spec(const TensorSpec& spec, const SetInfo& set, const Config& config, const Registry& registry) {
  const SpecCheck check(spec, set);
  check.name(config);
  check.kind();
  check.shape(config);
  check.roots();
  check.reduction(registry, config.min_np > 0);
  check.counts();
}

void check_submission(const TensorSpec& spec, const SetInfo& set, const Submission& submission) {
  const SpecCheck check(spec, set);
  if (submission.absent && spec.kind != CollectiveKind::kAllReduce) {
    check.refuse("only an all_reduce can be absent on a rank");
  }
  const bool is_split =
      spec.kind == CollectiveKind::kAllToAll || (spec.kind == CollectiveKind::kScatter && set.rank == spec.root);
  if (spec.counts_known && !submission.splits.empty()) {
    check.refuse("with counts_known the rows are dealt evenly, so a submission has no splits");
  }
  check.splits(submission.splits, is_split);
  if (spec.kind == CollectiveKind::kBarrier) return;
  check.device(submission);
  if (spec.bytes() == 0) return;
  if (submission.in == nullptr && !submission.absent && reads_in(spec, set)) {
    check.refuse("its input is a null pointer");
  }
  if (submission.out == nullptr && writes_out(spec, set)) check.refuse("its output is a null pointer");
}

}  // namespace horo
