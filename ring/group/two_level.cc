#include "ring/group/two_level.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "horo/base/error.h"
#include "horo/base/log.h"
#include "horo/base/say.h"
#include "ring/reduce/custom_op.h"
#include "ring/reduce/reduce.h"

namespace horo {
namespace {

constexpr std::size_t kMessageBytes = 32 << 10;  // rails are so few that messages between hosts have at least this many
constexpr std::size_t kMostHosts = 16;           // with more hosts the messages of even one rail cost too much
constexpr std::size_t kMostAssignments = 64;     // of the cache, which is cleared when it is full

// The feed of a member that is alone on its host: its own data are the host's sum.
class OwnFeed final : public SliceFeed {
 public:
  explicit OwnFeed(const HostShare& share) : share_(share) {
    sums_.plan(share.contributors);
    pieces_.plan(share.c);
  }

  void fill_input(std::size_t slice, std::byte* in) override {
    const std::size_t each = size_of(share_.c.dtype), partial = accumulator_bytes(share_.c.dtype, share_.c.op);
    const auto sum = [&](const std::byte* own, std::byte*, std::size_t bytes, std::size_t at) {
      sums_.sum_partial(share_.c, in + at / each * partial, bytes, [own](int) { return own; });
    };
    if (const Shard part = share_.part(0, slice); part.size > 0) pieces_.visit(share_.c, part, sum);
  }

  void take_output(std::size_t slice, const std::byte* out) override {
    const auto give = [out](const std::byte*, std::byte* own, std::size_t bytes, std::size_t at) {
      copy_bytes(own, out + at, bytes);
    };
    if (const Shard part = share_.part(0, slice); part.size > 0) pieces_.visit(share_.c, part, give);
  }

 private:
  const HostShare& share_;
  ShmSums sums_;
  Pieces pieces_;
};

// For messages that the other hosts refuse: no data.
class NoFeed final : public SliceFeed {
  void fill_input(std::size_t /*slice*/, std::byte* /*in*/) override {}
  void take_output(std::size_t /*slice*/, const std::byte* /*out*/) override {}
};

std::vector<int> members_of(const std::vector<int>& hosts, int host) {
  std::vector<int> members;
  for (std::size_t member = 0; member < hosts.size(); ++member) {
    if (hosts[member] == host) members.push_back(static_cast<int>(member));
  }
  return members;
}

// The schedule that one rank per host would choose for `bytes` bytes.
Schedule schedule_of_host(const Collective& c, std::size_t bytes, const HostsOfGroup& hosts, int host,
                          const Prices& prices) {
  Collective among = c;
  among.counts = {bytes / size_of(c.dtype)};
  among.contributors = hosts.contributors;
  std::vector<int> apart(hosts.members.size());
  std::iota(apart.begin(), apart.end(), 0);
  const Shape shape = horo::shape_of(among, hosts.size(), apart);
  return choose(among, shape, {}, prices).make(shape, host);
}

}  // namespace

TwoLevel::TwoLevel(const GroupContext& context, std::vector<int> hosts, const Prices& prices,
                   std::unique_ptr<ShmSync> memory)
    : context_(context),
      hosts_(std::move(hosts)),
      prices_(prices),
      members_of_host_(members_of(hosts_, hosts_[static_cast<std::size_t>(context.index)])),
      memory_(std::move(memory)),
      moves_(context, hosts_, memory_.get()) {
  if (memory_) feed_.emplace(*memory_);
  log_debug(say("collectives in two levels: ", members_of_host_.size(), " ranks of this host, then between hosts"));
}

bool TwoLevel::has_levels(const std::vector<int>& hosts) {
  const std::set<int> different(hosts.begin(), hosts.end());
  return different.size() > 1 && different.size() <= kMostHosts && different.size() < hosts.size();
}

bool TwoLevel::takes(const Collective& c, const std::vector<int>& hosts, bool at_any_size) {
  if (c.kind != CollectiveKind::kAllReduce) return TwoLevelMoves::takes(c, hosts, at_any_size);
  if (c.op == ReduceOp::kCustom) return false;
  return c.order == Order::kFast || hosts_of_group(c.contributors, hosts).are_subtrees;
}

bool TwoLevel::takes_pieces(const Collective& c) {
  return c.kind == CollectiveKind::kAllReduce && !ShmFeed::is_inline(c.counts[0] * size_of(c.dtype));
}

void TwoLevel::run(const Collective& c) {
  c.kind == CollectiveKind::kAllReduce ? all_reduce(c) : moves_.run(c);
}

void TwoLevel::all_reduce(const Collective& c) {
  const Assignment& assignment = assignment_for(c);
  if (assignment.is_empty) return;
  const Slices slices(c, assignment.schedule, {assignment.segment_bytes, assignment.segment_bytes});
  const HostShare share{c, slices, assignment.chunks, assignment.contributors};
  if (!feed_) {
    OwnFeed own(share);
    return run_fed(c, assignment, own);
  }
  try {
    feed_->begin(share);
  } catch (const Mismatch&) {
    send_mismatch(c, assignment);
    throw;
  }
  try {
    run_fed(c, assignment, *feed_);
    feed_->end();
  } catch (const Mismatch&) {
    feed_->give_up();
    throw;
  }
}

void TwoLevel::run_fed(const Collective& c, const Assignment& assignment, SliceFeed& feed) const {
  const GroupContext rails{context_.transport, context_.members, context_.index, assignment.segment_bytes,
                           context_.scratch};
  const Part mine = assignment.chunks[static_cast<std::size_t>(
      std::lower_bound(members_of_host_.begin(), members_of_host_.end(), context_.index) - members_of_host_.begin())];
  run_schedule(rails, c, assignment.schedule, {feed, mine, ShmFeed::kSlots});
}

// The members of this host differ and have thrown a Mismatch. The other hosts receive messages with a key hash that is
// not theirs, and throw one too.
void TwoLevel::send_mismatch(const Collective& c, const Assignment& assignment) const {
  Collective other = c;
  other.key_hash = ~c.key_hash;
  NoFeed nothing;
  try {
    run_fed(other, assignment, nothing);
  } catch (const Mismatch&) {
    return;
  }
}

const TwoLevel::Assignment& TwoLevel::assignment_for(const Collective& c) {
  const Key key{c.dtype, c.order, priced_bytes(c, context_.size()), c.contributors};
  if (const auto found = assignments_.find(key); found != assignments_.end()) return found->second;
  if (assignments_.size() >= kMostAssignments) assignments_.clear();
  return assignments_.emplace(key, assignment_of(c, hosts_, context_.index, prices_)).first->second;
}

TwoLevel::Assignment TwoLevel::assignment_of(const Collective& c, const std::vector<int>& hosts, int member,
                                             const Prices& prices) {
  const HostsOfGroup found = hosts_of_group(c.contributors, hosts);
  const std::size_t bytes = priced_bytes(c, static_cast<int>(hosts.size()));
  const int host = found.host_of(member);
  const Schedule of_host = schedule_of_host(c, bytes, found, host, prices);
  const std::size_t message = kMessageBytes * found.members.size();
  const Rails rails(found, std::max<std::size_t>(1, std::min(bytes, ShmFeed::kSliceBytes) / message));
  Assignment assignment;
  assignment.schedule = rails.lay(of_host, member);
  assignment.segment_bytes = ShmFeed::kSliceBytes / static_cast<std::size_t>(assignment.schedule.chunks);
  for (const int neighbour : found.members[static_cast<std::size_t>(host)]) {
    const Rails::Run run = rails.of(neighbour);
    assignment.chunks.push_back({Schedule::kIn, run.first * of_host.chunks, run.count * of_host.chunks});
    assignment.contributors.push_back(c.contributors[static_cast<std::size_t>(neighbour)]);
  }
  assignment.is_empty =
      std::all_of(c.contributors.begin(), c.contributors.end(), [](auto id) { return id == kAbsent; });
  return assignment;
}

}  // namespace horo
