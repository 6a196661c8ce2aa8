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
#include <numeric>

#include "horo/base/check.h"
#include "horo/base/error.h"
#include "horo/tensors/spec_check.h"

namespace horo {
namespace {

constexpr std::size_t kEagerBytes = 512 << 10;
constexpr std::int64_t kMostElements = std::int64_t{1} << 59;

int index_in(const std::vector<int>& ranks, int rank) {
  const auto found = std::lower_bound(ranks.begin(), ranks.end(), rank);
  HORO_CHECK(found != ranks.end() && *found == rank);
  return static_cast<int>(found - ranks.begin());
}

// One item that is not part of a bucket.
class ItemRun {
 public:
  ItemRun(const Item& item, const Collective& like, const Participants& participants)
      : item_(item),
        spec_(*item.spec),
        like_(like),
        participants_(participants),
        row_bytes_(row_elements(spec_) * size_of(spec_.dtype)) {}

  Outcome run() {
    switch (spec_.kind) {
      case CollectiveKind::kBarrier:
        participants_.group.run(like_);
        return {};
      case CollectiveKind::kReduceScatter:
        return reduce_scatter();
      case CollectiveKind::kAllGather:
      case CollectiveKind::kGather:
        return gather();
      case CollectiveKind::kScatter:
        return scatter();
      case CollectiveKind::kAllToAll:
        return all_to_all();
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
    c.counts = elements(rows_for_each(spec_.splits, spec_.shape.front(), participants_.group.size()));
    c.in = buffer_of(item_.submission.in, spec_.bytes());
    c.out = buffer_of(item_.submission.out, c.counts[me()] * size_of(spec_.dtype));
    participants_.group.run(c);
    return {};
  }

  Outcome gather() {
    const bool gets = spec_.kind == CollectiveKind::kAllGather || like_.root == participants_.group.rank();
    const auto parts_of = [&](const std::vector<std::int64_t>& rows) {
      return Parts{elements(rows), gets ? rows : std::vector<std::int64_t>()};
    };
    if (!spec_.counts_known) return move_parts(second(), parts_of(gather_all({spec_.shape.front()})));
    std::vector<std::int64_t> rows = spec_.splits;
    if (rows.empty()) rows.assign(size(), spec_.shape.front());
    const std::int64_t most = *std::max_element(rows.begin(), rows.end());
    return move_parts(first(static_cast<std::size_t>(most) * row_bytes_), parts_of(rows));
  }

  Outcome scatter() {
    if (spec_.counts_known) {
      const auto even = rows_for_each({}, spec_.shape.front(), participants_.group.size());
      return move_parts(first(spec_.bytes()), {elements(even), {even[me()]}});
    }
    std::vector<std::int64_t> rows(size());
    const bool is_root = like_.root == participants_.group.rank();
    if (is_root) rows = rows_for_each(item_.submission.splits, spec_.shape.front(), participants_.group.size());
    rows = gather_all(rows);
    const auto roots = rows.begin() + std::ptrdiff_t{like_.root} * participants_.group.size();
    rows = {roots, roots + participants_.group.size()};
    return move_parts(second(), {elements(rows), {rows[me()]}});
  }

  Outcome all_to_all() {
    const auto mine = rows_for_each(item_.submission.splits, spec_.shape.front(), participants_.group.size());
    std::vector<std::int64_t> rows;  // of each rank, for each rank
    for (std::size_t from = 0; from < size() && spec_.counts_known; ++from) {
      rows.insert(rows.end(), mine.begin(), mine.end());
    }
    const Collective c = spec_.counts_known ? first(spec_.bytes()) : second();
    if (!spec_.counts_known) rows = gather_all(mine);
    std::vector<std::int64_t> to_me;
    for (std::size_t from = 0; from < size(); ++from) to_me.push_back(rows[from * size() + me()]);
    return move_parts(c, {elements(rows), to_me});
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

  Collective sizes() const {
    Collective c = like_;
    c.dtype = DType::kInt64;
    c.op = ReduceOp::kSum;
    c.what = "the sizes of " + like_.what;
    return c;
  }

  // Returns when all ranks have reached this collective if eager bytes would exceed their limit. All ranks make the
  // same decision.
  void synchronize(Collective& c, std::size_t bytes) const {
    const bool is_counted = participants_.eager_bytes != nullptr;
    const std::size_t eager = bytes + (is_counted ? *participants_.eager_bytes : 0);
    const bool is_small = eager <= (is_counted ? kEagerBytes : kEagerBytes / 64);
    if (!is_small) {
      gather_all({0});
      c.plan += 1;
    }
    if (is_counted) *participants_.eager_bytes = is_small ? eager : 0;
  }

  // The values of all ranks, in their order; each has as many.
  std::vector<std::int64_t> gather_all(const std::vector<std::int64_t>& mine) const {
    std::vector<std::int64_t> all(size() * mine.size());
    Collective c = sizes();
    c.kind = CollectiveKind::kAllGather;
    c.counts.assign(size(), mine.size());
    c.in = buffer_of(mine.data(), mine.size() * sizeof(std::int64_t));
    c.out = buffer_of(all.data(), all.size() * sizeof(std::int64_t));
    participants_.group.run(c);
    return all;
  }

  // Elements for each number of rows. Throws ProtocolError for numbers of other ranks that are out of range.
  std::vector<std::size_t> elements(const std::vector<std::int64_t>& rows) const {
    const auto row = static_cast<std::int64_t>(row_elements(spec_));
    std::vector<std::size_t> counts;
    std::int64_t left = kMostElements;
    for (const std::int64_t count : rows) {
      if (count < 0 || (row > 0 && count > left / row)) {
        throw ProtocolError("a rank sent an invalid size: " + like_.what + " has " + std::to_string(count) +
                            " rows of " + std::to_string(row) + " elements");
      }
      left -= count * row;
      counts.push_back(static_cast<std::size_t>(count * row));
    }
    return counts;
  }

  struct Parts {
    std::vector<std::size_t> counts;  // of the collective
    std::vector<std::int64_t> rows;   // that this rank receives
  };

  // Runs the collective of the data.
  Outcome move_parts(Collective c, Parts parts) const {
    c.counts = std::move(parts.counts);
    std::vector<std::int64_t> rows = std::move(parts.rows);
    Outcome outcome;
    outcome.bytes = static_cast<std::size_t>(std::accumulate(rows.begin(), rows.end(), std::int64_t{0})) * row_bytes_;
    outcome.counts = std::move(rows);
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
  const std::size_t row_bytes_;
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
