// What a job becomes. Kinds whose parts differ in size between the ranks take two collectives under two plan numbers:
// in the first the ranks tell each other the sizes, in the second the parts travel.
//
// A receiver keeps what comes before he has asked for it, up to HORO_MAX_EARLY_BYTES; then the connection stands still,
// for all lanes that use it. So no lane may send much to a rank whose lane has not got that far: two lanes that did so
// to each other's ranks would wait for each other for ever. Kinds in which a rank can end its part before all others
// have begun theirs first wait until they have: the exchange of sizes does that, and where there is none, one of a
// number each.

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

// One item of a job that runs alone.
class ItemRun {
 public:
  ItemRun(const Item& item, const Collective& like, const JobGroup& party)
      : item_(item),
        spec_(*item.spec),
        like_(like),
        party_(party),
        row_bytes_(row_elements(spec_) * size_of(spec_.dtype)) {}

  Outcome run() {
    switch (spec_.kind) {
      case CollectiveKind::kBarrier:
        party_.group.run(like_);
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
  std::size_t size() const { return static_cast<std::size_t>(party_.group.size()); }
  std::size_t me() const { return static_cast<std::size_t>(party_.group.rank()); }

  // The same number of elements on every rank.
  Outcome whole() const {
    Collective c = like_;
    if (c.kind != CollectiveKind::kAllReduce) meet(c);
    c.counts = {spec_.elements()};
    const bool from_root = c.kind == CollectiveKind::kBroadcast || c.kind == CollectiveKind::kSendRecv;
    const bool reads = !item_.submission.absent && (!from_root || c.root == party_.group.rank());
    c.in = buffer_of(reads ? item_.submission.in : item_.submission.out, spec_.bytes());
    c.out = buffer_of(item_.submission.out, spec_.bytes());
    party_.group.run(c);
    return {};
  }

  Outcome reduce_scatter() const {
    Collective c = like_;
    meet(c);
    c.counts = elements(rows_for_each(spec_.splits, spec_.shape.front(), party_.group.size()));
    c.in = buffer_of(item_.submission.in, spec_.bytes());
    c.out = buffer_of(item_.submission.out, c.counts[me()] * size_of(spec_.dtype));
    party_.group.run(c);
    return {};
  }

  Outcome gather() {
    const std::vector<std::int64_t> rows = everybodys({spec_.shape.front()});
    const bool gets = spec_.kind == CollectiveKind::kAllGather || like_.root == party_.group.rank();
    return move(elements(rows), gets ? rows : std::vector<std::int64_t>());
  }

  Outcome scatter() {
    std::vector<std::int64_t> rows(size());
    const bool is_root = like_.root == party_.group.rank();
    if (is_root) rows = rows_for_each(item_.submission.splits, spec_.shape.front(), party_.group.size());
    rows = everybodys(rows);
    const auto roots = rows.begin() + static_cast<std::ptrdiff_t>(like_.root * party_.group.size());
    rows = {roots, roots + party_.group.size()};
    return move(elements(rows), {rows[me()]});
  }

  Outcome all_to_all() {
    const std::vector<std::int64_t> rows =
        everybodys(rows_for_each(item_.submission.splits, spec_.shape.front(), party_.group.size()));
    std::vector<std::int64_t> to_me;
    for (std::size_t from = 0; from < size(); ++from) to_me.push_back(rows[from * size() + me()]);
    return move(elements(rows), to_me);
  }

  Collective sizes() const {
    Collective c = like_;
    c.dtype = DType::kInt64;
    c.op = ReduceOp::kSum;
    c.what = "the sizes of " + like_.what;
    return c;
  }

  // Returns when all have come here, if more would be sent ahead otherwise than may be; all decide alike.
  void meet(Collective& c) const {
    const bool counts = party_.eager_bytes != nullptr;
    const std::size_t ahead = spec_.bytes() + (counts ? *party_.eager_bytes : 0);
    const bool is_small = ahead <= (counts ? kEagerBytes : kEagerBytes / 64);
    if (!is_small) {
      everybodys({0});
      c.plan += 1;
    }
    if (counts) *party_.eager_bytes = is_small ? ahead : 0;
  }

  // What all ranks say, in their order; each says as much.
  std::vector<std::int64_t> everybodys(const std::vector<std::int64_t>& mine) const {
    std::vector<std::int64_t> all(size() * mine.size());
    Collective c = sizes();
    c.kind = CollectiveKind::kAllGather;
    c.counts.assign(size(), mine.size());
    c.in = buffer_of(mine.data(), mine.size() * sizeof(std::int64_t));
    c.out = buffer_of(all.data(), all.size() * sizeof(std::int64_t));
    party_.group.run(c);
    return all;
  }

  // Numbers that came from other ranks are looked at before anything is made of them.
  std::vector<std::size_t> elements(const std::vector<std::int64_t>& rows) const {
    const auto row = static_cast<std::int64_t>(row_elements(spec_));
    std::vector<std::size_t> counts;
    std::int64_t left = kMostElements;
    for (const std::int64_t count : rows) {
      if (count < 0 || (row > 0 && count > left / row)) {
        throw ProtocolError("a rank says that " + like_.what + " has " + std::to_string(count) + " rows of " +
                            std::to_string(row) + " elements: no tensor has");
      }
      left -= count * row;
      counts.push_back(static_cast<std::size_t>(count * row));
    }
    return counts;
  }

  // The second collective; this rank gets `rows`.
  Outcome move(std::vector<std::size_t> counts, std::vector<std::int64_t> rows) const {
    Collective c = like_;
    c.plan += 1;
    c.counts = std::move(counts);
    Outcome outcome;
    outcome.bytes = static_cast<std::size_t>(std::accumulate(rows.begin(), rows.end(), std::int64_t{0})) * row_bytes_;
    outcome.counts = std::move(rows);
    const bool fits = item_.submission.out != nullptr && item_.submission.out_bytes >= outcome.bytes;
    if (!fits) outcome.data = std::make_unique_for_overwrite<std::byte[]>(outcome.bytes);
    c.in = buffer_of(item_.submission.in, spec_.bytes());
    c.out = buffer_of(fits ? item_.submission.out : outcome.data.get(), outcome.bytes);
    party_.group.run(c);
    if (fits || item_.submission.out == nullptr) return outcome;
    throw DoesNotFit(std::string(name_of(spec_.kind)) + " of " + like_.what + ": the result has " +
                     std::to_string(outcome.bytes) + " bytes, out has room for " +
                     std::to_string(item_.submission.out_bytes) + " (out_bytes); give more, or no out at all");
  }

  const Item& item_;
  const TensorSpec& spec_;
  const Collective& like_;
  const JobGroup& party_;
  const std::size_t row_bytes_;
};

}  // namespace

Buffer buffer_of(const void* data, std::size_t bytes) {
  Buffer buffer;
  buffer.data = const_cast<std::byte*>(static_cast<const std::byte*>(data));
  buffer.bytes = bytes;
  return buffer;
}

Collective collective_for(const Job& job, const JobGroup& party, const Config& config) {
  const TensorSpec& spec = *job.items.front().spec;
  Collective c;
  c.kind = spec.kind;
  c.op = spec.op;
  c.dtype = spec.dtype;
  c.order = spec.order;
  c.root = spec.root;
  // Contributor ids are ranks in the set, whoever takes part: the others are as absent as those who have no value.
  for (const int rank : party.ranks) c.contributors.push_back(index_in(party.members, rank));
  for (const int rank : job.release.absent_ranks) {
    const auto found = std::lower_bound(party.ranks.begin(), party.ranks.end(), rank);
    if (found == party.ranks.end() || *found != rank) continue;
    c.contributors[static_cast<std::size_t>(found - party.ranks.begin())] = kAbsent;
  }
  c.prescale = spec.prescale;
  c.postscale = spec.postscale;
  // Who has nothing counts in the divisor: his part of the mean is zero.
  c.divisor = spec.op == ReduceOp::kAverage ? static_cast<double>(party.members.size()) : 1.0;
  c.channel = party.channel;
  c.plan = 2 * job.release.number;  // and the odd number after it, where a collective has two parts
  c.key_hash = job.release.key_hash;
  c.deadline = Clock::now() + config.deadline;
  c.what = "tensor '" + spec.name + "'";
  if (job.items.size() > 1) c.what += " and " + std::to_string(job.items.size() - 1) + " more";
  return c;
}

Outcome run_item(const Item& item, const Collective& like, const JobGroup& party) {
  return ItemRun(item, like, party).run();
}

}  // namespace horo
