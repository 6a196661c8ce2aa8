// Collectives whose parts differ in size between the ranks use two collectives with consecutive plan numbers: the first
// exchanges the sizes, the second moves the parts.
//
// A receiver buffers bytes that arrive before their receive is posted, up to HORO_MAX_EARLY_BYTES per connection; then
// the connection stalls for all lanes that share it. So a lane must not send much to a rank whose lane has not reached
// the collective: two lanes that do so in opposite directions deadlock. Kinds in which a rank can finish its part
// before the others start theirs synchronize first: the exchange of sizes does so, and kinds without one exchange one
// number.

#include "horo/lane/job.h"

#include <algorithm>

#include "horo/base/check.h"
#include "horo/lane/part_sizes.h"
#include "horo/tensors/spec_check.h"

namespace horo {
namespace {

constexpr std::size_t kEagerBytes = 512 << 10;

int index_in(const std::vector<int>& ranks, int rank) {
  const auto found = std::lower_bound(ranks.begin(), ranks.end(), rank);
  HORO_CHECK(found != ranks.end() && *found == rank);
  return static_cast<int>(found - ranks.begin());
}

// One item that is not part of a bucket.
class ItemRun {
 public:
  ItemRun(const Item& item, const Collective& like, const Participants& participants)
      : item_(item), spec_(*item.spec), like_(like), participants_(participants) {}

  Outcome run() {
    switch (spec_.kind) {
      case CollectiveKind::kBarrier:
        participants_.group.run(like_);
        return {};
      case CollectiveKind::kReduceScatter:
        return reduce_scatter();
      case CollectiveKind::kAllGather:
      case CollectiveKind::kGather:
      case CollectiveKind::kScatter:
      case CollectiveKind::kAllToAll:
        return parts();
      default:
        return whole();
    }
  }

 private:
  std::size_t size() const { return static_cast<std::size_t>(participants_.group.size()); }
  std::size_t me() const { return static_cast<std::size_t>(participants_.group.rank()); }

  // Every rank has the same number of elements.
  Outcome whole() const {
    Collective c = like_;
    if (c.kind != CollectiveKind::kAllReduce) synchronize(c, spec_.bytes());
    c.counts = {spec_.elements()};
    const bool from_root = c.kind == CollectiveKind::kBroadcast || c.kind == CollectiveKind::kSendRecv;
    const bool reads = !item_.submission.absent && (!from_root || c.root == participants_.group.rank());
    c.in = buffer_of(reads ? item_.submission.in : item_.submission.out, spec_.bytes());
    c.out = buffer_of(item_.submission.out, spec_.bytes());
    participants_.group.run(c);
    return {};
  }

  Outcome reduce_scatter() const {
    Collective c = like_;
    synchronize(c, spec_.bytes());
    for (const std::int64_t rows : rows_for_each(spec_.splits, spec_.shape.front(), participants_.group.size())) {
      c.counts.push_back(static_cast<std::size_t>(rows) * row_elements(spec_));
    }
    c.in = buffer_of(item_.submission.in, spec_.bytes());
    c.out = buffer_of(item_.submission.out, c.counts[me()] * size_of(spec_.dtype));
    participants_.group.run(c);
    return {};
  }

  // Parts of any sizes.
  Outcome parts() const {
    const PartSizes sizes(item_, like_, participants_);
    return spec_.counts_known ? move_parts(first(sizes.most_bytes()), sizes.known())
                              : move_parts(second(), sizes.exchanged());
  }

  // The collective of the data: the only one, of parts of at most these bytes, which all ranks know; or the second one.
  Collective first(std::size_t most_bytes) const {
    Collective c = like_;
    synchronize(c, most_bytes);
    return c;
  }
  Collective second() const {
    Collective c = like_;
    c.plan += 1;
    return c;
  }

  // Returns when all ranks have reached this collective if eager bytes would exceed their limit. All ranks make the
  // same decision.
  void synchronize(Collective& c, std::size_t bytes) const {
    const bool is_counted = participants_.eager_bytes != nullptr;
    const std::size_t eager = bytes + (is_counted ? *participants_.eager_bytes : 0);
    const bool is_small = eager <= (is_counted ? kEagerBytes : kEagerBytes / 64);
    if (!is_small) {
      gather_numbers({0}, like_, participants_);
      c.plan += 1;
    }
    if (is_counted) *participants_.eager_bytes = is_small ? eager : 0;
  }

  // Runs the collective of the data.
  Outcome move_parts(Collective c, Parts parts) const {
    c.counts = std::move(parts.counts);
    Outcome outcome;
    outcome.bytes = parts.bytes;
    outcome.counts = std::move(parts.rows);
    const bool fits = item_.submission.out != nullptr && item_.submission.out_bytes >= outcome.bytes;
    if (!fits) outcome.data = std::make_unique_for_overwrite<std::byte[]>(outcome.bytes);
    c.in = buffer_of(item_.submission.in, spec_.bytes());
    c.out = buffer_of(fits ? item_.submission.out : outcome.data.get(), outcome.bytes);
    participants_.group.run(c);
    if (fits || item_.submission.out == nullptr) return outcome;
    throw OutTooSmall(too_small_text(item_, outcome.bytes));
  }

  const Item& item_;
  const TensorSpec& spec_;
  const Collective& like_;
  const Participants& participants_;
};

}  // namespace

std::size_t out_bytes_of(const Item& item, const Participants& participants) {
  const TensorSpec& spec = *item.spec;
  const int me = participants.group.rank();
  switch (spec.kind) {
    case CollectiveKind::kAllReduce:
    case CollectiveKind::kBroadcast:
      return item.bytes;
    case CollectiveKind::kReduce:
      return spec.root == me ? item.bytes : 0;
    case CollectiveKind::kSendRecv:
      return (spec.root < spec.peer) == (me == 0) ? 0 : item.bytes;  // as the root of collective_for()
    case CollectiveKind::kReduceScatter: {
      const auto rows = rows_for_each(spec.splits, spec.shape.front(), participants.group.size());
      return static_cast<std::size_t>(rows[static_cast<std::size_t>(me)]) * row_elements(spec) * size_of(spec.dtype);
    }
    default:
      return 0;
  }
}

bool is_source_in_place(const Item& item, const Group& group) {
  const bool is_source = item.spec->kind == CollectiveKind::kBroadcast && item.spec->root == group.rank();
  return is_source && item.submission.in == item.submission.out;
}

std::string too_small_text(const Item& item, std::size_t bytes) {
  return std::string(name_of(item.spec->kind)) + " of tensor '" + item.spec->name + "': the result has " +
         std::to_string(bytes) + " bytes, out has room for " + std::to_string(item.submission.out_bytes) +
         " (out_bytes); give more, or no out at all";
}

Buffer buffer_of(const void* data, std::size_t bytes) {
  Buffer buffer;
  buffer.data = const_cast<std::byte*>(static_cast<const std::byte*>(data));
  buffer.bytes = bytes;
  return buffer;
}

Collective collective_for(const Job& job, const Participants& participants, const Config& config) {
  const TensorSpec& spec = *job.first().spec;
  Collective c;
  c.kind = spec.kind;
  c.op = spec.op;
  c.dtype = spec.dtype;
  c.order = spec.order;
  c.root = spec.root;
  // The index of the sender in the pair. Ranks of the set and of the world have the same order.
  if (spec.kind == CollectiveKind::kSendRecv) c.root = spec.root < spec.peer ? 0 : 1;
  // Contributor ids are ranks in the set. Members that do not take part are as absent as those without a value.
  for (const int rank : participants.ranks) c.contributors.push_back(index_in(participants.members, rank));
  for (const int rank : job.release.absent_ranks) {
    const auto found = std::lower_bound(participants.ranks.begin(), participants.ranks.end(), rank);
    if (found == participants.ranks.end() || *found != rank) continue;
    c.contributors[static_cast<std::size_t>(found - participants.ranks.begin())] = kAbsent;
  }
  c.prescale = spec.prescale;
  c.postscale = spec.postscale;
  // The divisor counts absent members: their contribution to the mean is zero.
  c.divisor = spec.op == ReduceOp::kAverage ? static_cast<double>(participants.members.size()) : 1.0;
  c.channel = participants.channel;
  c.plan = 2 * job.release.number;  // the odd number after it is for the second of two collectives
  c.key_hash = job.release.key_hash;
  c.deadline = Clock::now() + config.deadline;
  c.what = "tensor '" + spec.name + "'";
  if (job.items->size() > 1) c.what += " and " + std::to_string(job.items->size() - 1) + " more";
  return c;
}

bool runs_by_tensor(const TensorSpec& spec) {
  return !spec.codec.empty() || spec.op == ReduceOp::kAdasum;
}

Outcome run_item(const Item& item, const Collective& like, const Participants& participants) {
  return ItemRun(item, like, participants).run();
}

}  // namespace horo
