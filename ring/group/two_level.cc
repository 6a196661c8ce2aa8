#include "ring/group/two_level.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "horo/base/error.h"
#include "ring/reduce/custom_op.h"
#include "ring/reduce/reduce.h"

namespace horo {
namespace {

constexpr std::size_t kMessageBytes = 32 << 10;  // rails are so few that messages between hosts have as many
constexpr std::size_t kMostHosts = 16;           // of more even one rail's messages cost more than they carry
constexpr std::size_t kMostWays = 64;            // kept

// Of a member that is alone on its host: its host's sum is what it has.
class OwnFeed final : public SliceFeed {
 public:
  explicit OwnFeed(const HostShare& share) : share_(share) {
    sums_.plan(share.contributors);
    pieces_.plan(share.c);
  }

  void bring(std::size_t slice, std::byte* in) override {
    const std::size_t each = size_of(share_.c.dtype), partial = size_of(accumulator_of(share_.c.dtype));
    const auto sum = [&](const std::byte* own, std::byte*, std::size_t bytes, std::size_t at) {
      sums_.sum_partial(share_.c, in + at / each * partial, bytes, [own](int) { return own; });
    };
    if (const Shard part = share_.part(0, slice); part.size > 0) pieces_.visit(share_.c, part, sum);
  }

  void take(std::size_t slice, const std::byte* out) override {
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

// What it sends is refused, whatever others expect.
class NoFeed final : public SliceFeed {
  void bring(std::size_t /*slice*/, std::byte* /*in*/) override {}
  void take(std::size_t /*slice*/, const std::byte* /*out*/) override {}
};

std::vector<int> members_of(const std::vector<int>& hosts, int host) {
  std::vector<int> members;
  for (std::size_t member = 0; member < hosts.size(); ++member) {
    if (hosts[member] == host) members.push_back(static_cast<int>(member));
  }
  return members;
}

// How one rank per host would run it, by its price there, of so many bytes.
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

TwoLevel::TwoLevel(const Party& party, std::vector<int> hosts, const Prices& prices, std::unique_ptr<ShmFeed> room)
    : party_(party),
      hosts_(std::move(hosts)),
      prices_(prices),
      mates_(members_of(hosts_, hosts_[static_cast<std::size_t>(party.index)])),
      room_(std::move(room)) {}

bool TwoLevel::has_levels(const std::vector<int>& hosts) {
  const std::set<int> different(hosts.begin(), hosts.end());
  return different.size() > 1 && different.size() <= kMostHosts && different.size() < hosts.size();
}

bool TwoLevel::takes(const Collective& c, const std::vector<int>& hosts) {
  if (c.kind != CollectiveKind::kAllReduce || c.op == ReduceOp::kCustom) return false;
  return c.order == Order::kFast || hosts_of_group(c.contributors, hosts).are_subtrees;
}

bool TwoLevel::takes_pieces(const Collective& c) {
  return !ShmFeed::is_flat(c.counts[0] * size_of(c.dtype));
}

void TwoLevel::run(const Collective& c) {
  const Way& way = way_for(c);
  if (way.is_idle) return;
  const Slices slices(c, way.schedule, {way.segment_bytes, way.segment_bytes});
  const HostShare share{c, slices, way.chunks, way.contributors};
  if (!room_) {
    OwnFeed own(share);
    return run_fed(c, way, own);
  }
  try {
    room_->begin(share);
  } catch (const Mismatch&) {
    spoil(c, way);
    throw;
  }
  try {
    run_fed(c, way, *room_);
    room_->end();
  } catch (const Mismatch&) {
    room_->give_up();
    throw;
  }
}

void TwoLevel::run_fed(const Collective& c, const Way& way, SliceFeed& feed) const {
  const Party rails{party_.transport, party_.members, party_.index, way.segment_bytes, party_.scratch};
  const Part mine = way.chunks[static_cast<std::size_t>(std::lower_bound(mates_.begin(), mates_.end(), party_.index) -
                                                        mates_.begin())];
  run_schedule(rails, c, way.schedule, {feed, mine, ShmFeed::kSlots});
}

// The members of this host did not bring the same, and know it; the other hosts learn it from messages that cannot be
// theirs.
void TwoLevel::spoil(const Collective& c, const Way& way) const {
  Collective other = c;
  other.key_hash = ~c.key_hash;
  NoFeed nothing;
  try {
    run_fed(other, way, nothing);
  } catch (const Mismatch&) {
    return;
  }
}

const TwoLevel::Way& TwoLevel::way_for(const Collective& c) {
  const Key key{c.dtype, c.order, priced_bytes(c, party_.size()), c.contributors};
  if (const auto found = ways_.find(key); found != ways_.end()) return found->second;
  if (ways_.size() >= kMostWays) ways_.clear();
  return ways_.emplace(key, way_of(c, hosts_, party_.index, prices_)).first->second;
}

TwoLevel::Way TwoLevel::way_of(const Collective& c, const std::vector<int>& hosts, int member, const Prices& prices) {
  const HostsOfGroup found = hosts_of_group(c.contributors, hosts);
  const std::size_t bytes = priced_bytes(c, static_cast<int>(hosts.size()));
  const int host = found.host_of(member);
  const Schedule of_host = schedule_of_host(c, bytes, found, host, prices);
  const std::size_t message = kMessageBytes * found.members.size();
  const Rails rails(found, std::max<std::size_t>(1, std::min(bytes, ShmFeed::kSliceBytes) / message));
  Way way;
  way.schedule = rails.lay(of_host, member);
  way.segment_bytes = ShmFeed::kSliceBytes / static_cast<std::size_t>(way.schedule.chunks);
  for (const int mate : found.members[static_cast<std::size_t>(host)]) {
    const Rails::Run run = rails.of(mate);
    way.chunks.push_back({Schedule::kIn, run.first * of_host.chunks, run.count * of_host.chunks});
    way.contributors.push_back(c.contributors[static_cast<std::size_t>(mate)]);
  }
  way.is_idle = std::all_of(c.contributors.begin(), c.contributors.end(), [](auto id) { return id == kAbsent; });
  return way;
}

}  // namespace horo
