// Processes that are started later, as in grow(): the members agree on a place of all their streams, come to it, and
// leave the epoch there; those that have joined get the state of the others before any goes on.
#include <algorithm>

#include "tests/elastic/simulation.h"

namespace horo::sim {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t kMostTries = 30;
constexpr Duration kBetweenTries = 20ms;

}  // namespace

// ---- The processes.

void Simulation::plan_start(Duration delay) {
  if (scenario_.joins.most > 0) later({EventKind::kStarts}, delay);
}

// As the guard: none is started that could not join.
void Simulation::start_process(std::uint64_t tries) {
  if (started_ >= scenario_.joins.most || is_over_) return;
  const auto runs = std::count_if(members_.begin(), members_.end(), [](const MemberState& member) {
    return member.phase != MemberPhase::kEnded && member.phase != MemberPhase::kOut;
  });
  if (runs >= scenario_.config.max_members || !guard_.real().can_grow() || now_ < guard_runs_) {
    if (tries < kMostTries) later({EventKind::kStarts, 0, 0, 0, tries + 1}, kBetweenTries);
    return;
  }
  const MemberId id = static_cast<MemberId>(scenario_.config.members) + started_++;
  ++report_.started;
  MemberState& member = at(id);
  member.phase = MemberPhase::kWaiting;
  member.is_stopped = false;
  member.hangs_until = {};
  for (std::size_t i = 0; i < scenario_.faults.size(); ++i) {
    const FaultPlan& fault = scenario_.faults[i];
    if (fault.member == id && !fault.moment) later({EventKind::kFault, 0, 0, 0, i}, fault.at);
  }
  guard_takes(MemberStarted{id});
  later({EventKind::kReady, id}, some(id, scenario_.joins.ready));
}

void Simulation::say_ready(MemberId id) {
  if (at(id).phase != MemberPhase::kWaiting) return;
  send_to_guard(id, Ready{has(scenario_.joins.differing, id) ? "a=2" : "a=1", {}});
  reach(id, Moment::kReadies);
}

void Simulation::on_join(const SimEvent& event) {
  MemberState& member = at(event.member);
  if (event.kind == EventKind::kReady) return say_ready(event.member);
  if (event.kind == EventKind::kSaysCanGrow) {
    const bool is_here = member.phase != MemberPhase::kOut && !has(scenario_.joins.never_can, event.member);
    if (is_here) send_to_guard(event.member, CanGrow{"a=1"});
    return;
  }
  if (member.phase != MemberPhase::kRunning || member.epoch != event.epoch) return;
  if (event.kind == EventKind::kTransferred) return end_transfer(event.member);
  if (event.kind == EventKind::kTransferEnds && member.awaits_transfer) return begin_program(event.member);
  if (event.kind == EventKind::kBorder && member.growth == GrowthStep::kThere) return leave_epoch(event.member);
  if (event.kind != EventKind::kPlace || member.growth != GrowthStep::kTold) return;
  member.growth = GrowthStep::kPlaced;
  for (std::uint32_t lane = 0; lane < member.lanes.size(); ++lane) {
    if (member.lanes[lane].is_stopped) continue;
    for (std::uint32_t stream = 0; stream < member.lanes[lane].streams.size(); ++stream)
      later({EventKind::kSubmit, event.member, event.epoch, lane, stream}, some(event.member, scenario_.times.submit));
  }
  come_to_place(event.member);
}

// ---- The border.

// An exchange of all members: each waits in it until all have been told.
void Simulation::take(MemberId id, const Grow& grow) {
  MemberState& member = at(id);
  if (member.phase != MemberPhase::kRunning) return;
  member.is_to_grow = member.is_to_grow || !grow.joiners.empty();  // the exchange has begun on others
  if (!member.awaits_transfer) begin_growth(id);
}

void Simulation::begin_growth(MemberId id) {
  MemberState& member = at(id);
  if (!member.is_to_grow || member.is_leaving || member.growth != GrowthStep::kNone) return;
  EpochRecord& shared = record(member.epoch);
  member.growth = GrowthStep::kTold;
  shared.told |= only(id);
  watch_left(id);
  if (shared.told == shared.members) agree_on_place(member.epoch);
}

// The place is behind all that any member has begun to submit.
void Simulation::agree_on_place(std::uint32_t epoch) {
  EpochRecord& shared = record(epoch);
  shared.place.clear();
  for (std::uint32_t lane = 0; lane < scenario_.lanes.size(); ++lane) {
    auto& rounds = shared.place.emplace_back(scenario_.lanes[lane].streams.size());
    for (const MemberId id : list_of(shared.members)) {
      if (!has(scenario_.lanes[lane].set, id) || at(id).lanes[lane].has_failed) continue;
      for (std::size_t i = 0; i < rounds.size(); ++i) {
        const StreamState& stream = at(id).lanes[lane].streams[i];
        rounds[i] = std::max(rounds[i], stream.round + (stream.part > 0 ? 1 : 0));
      }
    }
  }
  for (const MemberId id : list_of(shared.members))
    later({EventKind::kPlace, id, epoch}, some(id, scenario_.times.link));
}

// Whether the next round of the stream is behind the place, or the place is not known yet.
bool Simulation::is_held(MemberState& member, std::uint32_t lane, std::uint32_t stream) const {
  const StreamState& state = member.lanes[lane].streams[stream];
  if (member.growth == GrowthStep::kNone || state.part > 0) return false;
  return member.growth == GrowthStep::kTold || state.round >= epochs_[member.epoch].place[lane][stream];
}

// The growth is released when all members have asked for it and all before it is delivered.
void Simulation::come_to_place(MemberId id) {
  MemberState& member = at(id);
  if (member.phase != MemberPhase::kRunning || member.growth != GrowthStep::kPlaced) return;
  EpochRecord& shared = record(member.epoch);
  for (std::uint32_t lane = 0; lane < member.lanes.size(); ++lane) {
    if (member.lanes[lane].is_stopped) continue;
    for (std::uint32_t stream = 0; stream < member.lanes[lane].streams.size(); ++stream) {
      skip_absent(id, lane, stream);
      if (member.lanes[lane].streams[stream].delivered < shared.place[lane][stream]) return;
    }
  }
  member.growth = GrowthStep::kThere;
  shared.at_place |= only(id);
  if (shared.at_place != shared.members) return;
  for (const MemberId one : list_of(shared.members))
    later({EventKind::kBorder, one, member.epoch}, some(one, scenario_.times.link));
}

// In good order: no peer is told.
void Simulation::leave_epoch(MemberId id) {
  MemberState& member = at(id);
  member.growth = GrowthStep::kLeaves;
  member.lost.reset();
  member.phase = MemberPhase::kFreezing;
  later({EventKind::kFreezeDone, id}, some(id, scenario_.times.freeze));
  reach(id, Moment::kFreezes);
}

// ---- The state.

// All members of the epoch take part in the transfer.
void Simulation::begin_transfers(std::uint32_t epoch) {
  const std::vector<MemberId> members = list_of(record(epoch).members);
  for (const MemberId id : members) {
    if (at(id).phase != MemberPhase::kRunning || at(id).epoch != epoch) return;
  }
  for (const MemberId id : members) {
    watch_left(id);
    if (!at(id).has_state) later({EventKind::kTransferred, id, epoch}, some(id, scenario_.joins.transferred));
  }
}

// The next rounds of a joiner are those that a member with the state has not delivered.
void Simulation::end_transfer(MemberId id) {
  MemberState& member = at(id);
  const EpochRecord& shared = record(member.epoch);
  const std::vector<MemberId> members = list_of(shared.members);
  const auto is_reached = [&](MemberId peer) {
    return at(peer).phase == MemberPhase::kRunning && at(peer).epoch == member.epoch && !shared.is_broken(id, peer);
  };
  if (!std::all_of(members.begin(), members.end(), is_reached)) return;
  std::vector<StreamState>& streams = member.lanes.front().streams;
  for (StreamState& stream : streams) stream.delivered = UINT32_MAX;
  for (const MemberId donor : members) {
    for (std::size_t i = 0; i < streams.size() && at(donor).has_state; ++i)
      streams[i].delivered = std::min(streams[i].delivered, at(donor).lanes.front().streams[i].delivered);
  }
  std::vector<std::uint32_t> rounds;
  for (StreamState& stream : streams) rounds.push_back(stream.round = stream.delivered);
  member.has_state = true;
  checker_.sync(id, rounds);
  ++report_.synced;
  send_to_guard(id, Synced{member.epoch, ""});
  if (!reach(id, Moment::kSyncs)) return;
  if (!std::all_of(members.begin(), members.end(), [this](MemberId one) { return at(one).has_state; })) return;
  for (const MemberId one : members)
    later({EventKind::kTransferEnds, one, member.epoch}, some(one, scenario_.times.link));
}

void Simulation::count_joins(const GuardMessage& message, MemberId id) {
  const std::uint32_t epoch = guard_.real().epoch();
  if (const auto* freeze = std::get_if<Freeze>(&message)) checker_.send(id, *freeze, now_);
  if (const auto* grow = std::get_if<Grow>(&message)) checker_.send(*grow, epoch);
  const auto* evicted = std::get_if<Evicted>(&message);
  if (evicted != nullptr && evicted->reason.find("cannot join") != std::string::npos) ++report_.refused;
  const auto* view = std::get_if<View>(&message);
  if (view == nullptr || id != view->members.front()) return;
  report_.joined += view->joined.size();
  if (view->at_border && view->joined.empty()) ++report_.empty_borders;
  if (!view->at_border && checker_.has_border(epoch - 1)) ++report_.broken_borders;
}

}  // namespace horo::sim
