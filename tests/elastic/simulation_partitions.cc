// The network between two members is cut in one direction or both, for a time. TCP sends again what has not arrived, so
// a message arrives when the cut ends, unless the epoch has ended before. A member that needs the other one may give up
// the link meanwhile.
#include <algorithm>

#include "tests/elastic/simulation.h"

namespace horo::sim {

void Simulation::cut(MemberId from, MemberId to, TimePoint until) {
  TimePoint& end = cuts_[{from, to}];
  end = std::max(end, until);
}

bool Simulation::is_cut(MemberId from, MemberId to) const {
  const auto found = cuts_.find({from, to});
  return found != cuts_.end() && found->second > now_;
}

Duration Simulation::cut_left(MemberId from, MemberId to) {
  if (cuts_.empty() || !is_cut(from, to)) return {};
  ++report_.held_messages;
  return cuts_[{from, to}] - now_;
}

Duration Simulation::longest_cut(MemberSet from, MemberId to, bool is_both_ways) {
  Duration longest{};
  if (cuts_.empty()) return longest;
  for (const MemberId one : list_of(from)) {
    longest = std::max(longest, cut_left(one, to));
    if (is_both_ways) longest = std::max(longest, cut_left(to, one));
  }
  return longest;
}

// One of them, by chance.
std::optional<MemberId> Simulation::cut_peer(MemberId id, MemberSet peers) {
  std::vector<MemberId> found = list_of(peers & ~only(id));
  std::erase_if(found, [&](MemberId peer) { return !is_cut(id, peer) && !is_cut(peer, id); });
  return found.empty() ? std::nullopt : std::optional(found[random_.below(found.size())]);
}

void Simulation::count_cut(MemberId id, MemberId peer, std::uint32_t epoch) {
  EpochRecord& shared = record(epoch);
  if (!shared.is_broken(id, peer)) shared.broken.emplace_back(std::min(id, peer), std::max(id, peer));
  checker_.count_link_failure(id, peer, epoch);
}

void Simulation::miss_peer(MemberId id) {
  const MemberState& member = at(id);
  if (member.phase != MemberPhase::kRunning || !has_in_flight(member)) return;
  const auto peer = cut_peer(id, record(member.epoch).members);
  if (!peer) return;
  count_cut(id, *peer, member.epoch);
  later({EventKind::kPeerLost, id, member.epoch, 0, 0, *peer}, some(id, scenario_.times.link));
}

// Not all members of the epoch have come in time.
void Simulation::miss_in_install(MemberId id) {
  const std::uint32_t epoch = at(id).installing;
  const auto peer = cuts_.empty() ? std::nullopt : cut_peer(id, record(epoch).members);
  if (peer) count_cut(id, *peer, epoch);
  cancel_install(id, planted_ == Planted::kNamesNoneOfACut ? std::nullopt : peer);
}

}  // namespace horo::sim
