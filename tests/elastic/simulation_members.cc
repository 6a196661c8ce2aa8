// Members as in horo/engine/elastic_epochs.cc: they freeze, settle, install and leave.
#include <algorithm>

#include "tests/elastic/simulation.h"

namespace horo::sim {
namespace {

using namespace std::chrono_literals;

constexpr Duration kLeftPatience = 100ms;
constexpr Duration kInstallTimeout = 10s;
constexpr Duration kDeadline = 30s;  // of a collective that a peer has no part in any more

}  // namespace

// ---- The end of an epoch.

// The lanes go on until the engine thread has stopped them. `lost`: a member that this one misses. `told`: a peer does.
void Simulation::begin_freeze(MemberId id, std::optional<MemberId> lost, std::optional<MemberId> told) {
  MemberState& member = at(id);
  tell_peers(id, EventKind::kPeerAborts, lost ? lost : told);
  member.lost = lost || planted_ != Planted::kNamesWhatItWasTold ? lost : told;
  member.phase = MemberPhase::kFreezing;
  member.growth = GrowthStep::kNone;
  member.awaits_transfer = false;
  for (LaneState& lane : member.lanes) lane.is_stopped = lane.is_stopped || random_.one_in(3);
  later({EventKind::kFreezeDone, id}, some(id, scenario_.times.freeze));
  reach(id, Moment::kFreezes);
}

void Simulation::end_freeze(MemberId id) {
  MemberState& member = at(id);
  if (member.phase != MemberPhase::kFreezing) return;
  member.phase = MemberPhase::kFrozen;
  member.is_settled = false;
  for (LaneState& lane : member.lanes) {
    if (planted_ != Planted::kDeliversAfterFrozen) lane.is_stopped = true;
  }
  send_frozen(id, member.epoch, member.lost);
  if (reach(id, Moment::kSendsFrozen)) read_inbox(id);
}

// The progress of an epoch that the member did not install is empty. A lane without progress need not be listed.
void Simulation::send_frozen(MemberId id, std::uint32_t epoch, std::optional<MemberId> lost) {
  MemberState& member = at(id);
  Frozen frozen{epoch, {}, lost, "it froze"};
  frozen.at_border = std::exchange(member.growth, GrowthStep::kNone) == GrowthStep::kLeaves;
  for (std::uint32_t index = 0; index < member.lanes.size() && !member.is_settled; ++index) {
    const LaneState& lane = member.lanes[index];
    const bool is_listed = lane.complete > 0 || !scenario_.omits_idle_lanes;
    if (has(scenario_.lanes[index].set, id) && !lane.has_failed && is_listed) frozen.progress[index] = lane.complete;
  }
  const bool forgets = is_odd(id, Planted::kForgetsALaneInFrozen) && !frozen.progress.empty();
  if (forgets) frozen.progress.erase(std::prev(frozen.progress.end()));
  member.frozen = frozen;
  checker_.send(id, frozen);
  send_to_guard(id, frozen);
}

void Simulation::take(MemberId id, const Freeze& freeze) {
  MemberState& member = at(id);
  if (member.phase == MemberPhase::kRunning && member.epoch == freeze.epoch) return begin_freeze(id, freeze.lost, {});
  if (member.phase == MemberPhase::kInstalling && member.installing == freeze.epoch) {
    if (planted_ != Planted::kIgnoresAFreezeDuringInstall) cancel_install(id, {});
    return;
  }
  const bool is_again = member.phase == MemberPhase::kFrozen && member.frozen && member.frozen->epoch == freeze.epoch;
  if (is_again && scenario_.repeats_frozen) send_to_guard(id, *member.frozen);
}

// ---- The next epoch.

void Simulation::take(MemberId id, const View& view) {
  MemberState& member = at(id);
  if (member.phase == MemberPhase::kOut) return;
  if (member.phase != MemberPhase::kFrozen && member.phase != MemberPhase::kWaiting) {
    return checker_.violate("member " + std::to_string(id) + " gets the View of epoch " + std::to_string(view.epoch) +
                            " and is not frozen");
  }
  member.view = view;
  member.done = view.progress;
  if (!reach(id, Moment::kTakesView)) return;
  settle(id);
  if (member.phase != MemberPhase::kEnded) begin_install(id);
}

// The program goes on with what is delivered, as far as it needs no other member.
void Simulation::take(MemberId id, const Settle& settle_message) {
  MemberState& member = at(id);
  if (member.phase == MemberPhase::kOut) return;
  if (member.phase != MemberPhase::kFrozen) {
    return checker_.violate("member " + std::to_string(id) + " is told to settle and is not frozen");
  }
  member.done = settle_message.progress;
  ++report_.settles;
  settle(id);
  if (member.phase == MemberPhase::kFrozen && is_done(member, id)) finish(id);
}

// What is done on all survivors is delivered on all of them.
void Simulation::settle(MemberId id) {
  MemberState& member = at(id);
  if (std::exchange(member.is_settled, true)) return;
  for (std::uint32_t index = 0; index < member.lanes.size(); ++index) {
    LaneState& lane = member.lanes[index];
    lane.is_stopped = true;
    const auto is_done = [&](std::uint64_t number, MemberSet participants) {
      return planted_rule(planted_, member.done, index, number, list_of(participants));
    };
    std::vector<Delivery> commit = std::exchange(lane.committing, {});
    if (!commit.empty() && is_done(lane.commit_number, lane.commit_participants)) {
      ++report_.commits_settled;
      deliver(id, index, std::move(commit));
      if (member.phase == MemberPhase::kEnded) return;
    } else if (!commit.empty()) {
      ++report_.commits_dropped;
    }
    for (StreamState& stream : lane.streams) {
      for (const Delivery& part : std::exchange(stream.held, {})) {
        const MemberSet participants = lane_of(member.epoch, index).released[part.number - 1].participants;
        const bool is_alone = planted_ == Planted::kCommitsThePartsOfARoundAlone;
        if (is_alone && is_done(part.number, participants)) checker_.deliver(id, std::span(&part, 1));
      }
    }
  }
}

void Simulation::begin_install(MemberId id) {
  MemberState& member = at(id);
  member.phase = MemberPhase::kInstalling;
  member.installing = member.view.epoch;
  later({EventKind::kSettled, id, member.installing}, some(id, scenario_.times.connect));
  later({EventKind::kInstallTimeout, id, member.installing}, kInstallTimeout);
}

// The connections of an epoch are made when all its members have come.
void Simulation::connect(MemberId id, std::uint32_t epoch) {
  MemberState& member = at(id);
  if (member.phase != MemberPhase::kInstalling || member.installing != epoch) return;
  if (!reach(id, Moment::kConnects)) return;
  EpochRecord& shared = record(epoch);
  shared.connecting |= only(id);
  if (shared.connecting != shared.members) return;
  for (const MemberId one : list_of(shared.members)) {  // links need one secret
    if (at(one).view.secret != at(id).view.secret) return;
  }
  for (const MemberId one : list_of(shared.members)) {
    const Duration wait = longest_cut(shared.members & ~only(one), one, true);
    later({EventKind::kConnected, one, epoch}, wait + some(one, scenario_.times.connect));
  }
}

void Simulation::cancel_install(MemberId id, std::optional<MemberId> lost) {
  MemberState& member = at(id);
  if (planted_ == Planted::kNamesNoneInInstall) lost.reset();
  ++report_.installs_cancelled;
  tell_peers(id, EventKind::kPeerAborts, lost);
  record(member.installing).connecting &= ~only(id);
  member.phase = MemberPhase::kFrozen;
  send_frozen(id, member.installing, lost);
  reach(id, Moment::kSendsFrozen);
}

void Simulation::end_install(MemberId id) {
  MemberState& member = at(id);
  for (const auto& [one, other] : bad_links_) {
    const bool is_mine = (one == id || other == id) && has(record(member.installing).members, one == id ? other : one);
    if (is_mine && scenario_.fails_to_connect) return break_link(one, other);
  }
  enter_epoch(id);
}

void Simulation::enter_epoch(MemberId id) {
  MemberState& member = at(id);
  member.epoch = member.installing;
  member.ranks = member.view.members;
  if (is_odd(id, Planted::kNumbersRanksInAnotherOrder)) std::reverse(member.ranks.begin(), member.ranks.end());
  member.phase = MemberPhase::kRunning;
  member.is_patient = false;
  member.missed.clear();
  for (std::uint32_t index = 0; index < member.lanes.size(); ++index) {
    LaneState& lane = member.lanes[index];
    const MemberSet set = scenario_.lanes[index].set;
    const bool has_lost = !scenario_.lanes[index].shrinks && (set & ~record(member.epoch).members) != 0;
    if (has(set, id) && has_lost && !lane.has_failed) {
      lane.has_failed = true;
      ++report_.failed_lanes;
      checker_.fail_lane(id, index);
    }
    lane.is_stopped = !has(set, id) || lane.has_failed;
    lane.step = LaneStep::kIdle;
    lane.known = lane.ended = lane.complete = 0;
    for (StreamState& stream : lane.streams) {
      stream.round = stream.delivered;
      stream.part = 0;
      stream.is_waiting = false;
      stream.held.clear();
      const bool is_again = is_odd(id, Planted::kSubmitsADeliveredCollectiveAgain) && member.epoch > 0;
      if (is_again && stream.round > 0) stream.delivered = --stream.round;
    }
  }
  member.growth = GrowthStep::kNone;
  member.is_to_grow = false;
  member.awaits_transfer =
      std::any_of(member.ranks.begin(), member.ranks.end(), [this](MemberId one) { return !at(one).has_state; });
  send_to_guard(id, Installed{member.epoch});
  if (!reach(id, Moment::kInstalls)) return;
  watch_left(id);
  if (member.awaits_transfer) return begin_transfers(member.epoch);
  begin_program(id);
}

void Simulation::begin_program(MemberId id) {
  MemberState& member = at(id);
  member.awaits_transfer = false;
  for (std::uint32_t index = 0; index < member.lanes.size(); ++index) {
    LaneState& lane = member.lanes[index];
    lane.known = lane_of(member.epoch, index).released.size();
    for (std::uint32_t stream = 0; stream < lane.streams.size() && !lane.is_stopped; ++stream) {
      later({EventKind::kSubmit, id, member.epoch, index, stream}, some(id, scenario_.times.submit));
    }
  }
  fail_links_again(id);
  if (remote_ != nullptr) watch_gone(id);
  begin_growth(id);
  if (member.growth != GrowthStep::kNone) return;
  if (is_done(member, id)) finish(id);
}

// Peers that were gone before: a collective with them does not end, and the guard may have no contact.
void Simulation::watch_gone(MemberId id) {
  const std::uint32_t epoch = at(id).epoch;
  for (const MemberId peer : list_of(record(epoch).members & ~record(epoch).left & ~only(id))) {
    const MemberState& other = at(peer);
    const bool is_there = other.phase == MemberPhase::kRunning || other.phase == MemberPhase::kInstalling;
    if (is_there && link_epoch(other) == epoch) continue;
    const bool has_ended = other.phase == MemberPhase::kEnded;
    later({has_ended ? EventKind::kPeerLost : EventKind::kPeerAborts, id, epoch, 0, 0, peer}, random_.up_to(kDeadline));
  }
}

// ---- Peers.

// The epoch in which the member has links.
std::uint32_t Simulation::link_epoch(const MemberState& member) const {
  return member.phase == MemberPhase::kInstalling ? member.installing : member.epoch;
}

// Some peers see it, the others do not: then the guard tells them.
void Simulation::tell_peers(MemberId id, EventKind kind, std::optional<MemberId> lost) {
  const std::uint32_t epoch = link_epoch(at(id));
  for (const MemberId peer : list_of(record(epoch).members & ~only(id))) {
    Duration wait = cut_left(id, peer);
    if (random_.one_in(4)) {
      if (remote_ == nullptr) continue;
      wait += random_.up_to(kDeadline);  // the guard may have no contact
    }
    later({kind, peer, epoch, 0, lost ? *lost + 1U : 0U, id}, wait + some(id, scenario_.times.link));
  }
}

void Simulation::on_peer(const SimEvent& event) {
  MemberState& member = at(event.member);
  std::optional<MemberId> lost, told;
  if (event.kind == EventKind::kPeerLost) {
    lost = event.from;
  } else if (event.number != 0) {
    told = static_cast<MemberId>(event.number - 1);
  }
  if (member.phase == MemberPhase::kRunning && member.epoch == event.epoch) {
    return begin_freeze(event.member, lost, told);
  }
  if (member.phase != MemberPhase::kInstalling || member.installing != event.epoch) return;
  if (record(event.epoch).is_broken(event.member, event.from) || random_.one_in(2)) cancel_install(event.member, lost);
}

// A member that has left may have delivered what this one is about to deliver.
void Simulation::watch_left(MemberId id) {
  MemberState& member = at(id);
  if (member.phase != MemberPhase::kRunning || record(member.epoch).left == 0 || member.is_patient) return;
  if (!has_in_flight(member)) return;
  member.is_patient = true;
  later({EventKind::kPatienceEnds, id, member.epoch}, kLeftPatience + some(id, scenario_.times.link));
}

void Simulation::on_patience(const SimEvent& event) {
  MemberState& member = at(event.member);
  if (member.phase != MemberPhase::kRunning || member.epoch != event.epoch) return;
  member.is_patient = false;
  if (has_in_flight(member)) begin_freeze(event.member, list_of(record(event.epoch).left).front(), {});
}

bool Simulation::has_in_flight(const MemberState& member) const {
  if (member.growth != GrowthStep::kNone || member.awaits_transfer) return true;
  return std::any_of(member.lanes.begin(), member.lanes.end(), [](const LaneState& lane) {
    return std::any_of(lane.streams.begin(), lane.streams.end(),
                       [](const StreamState& stream) { return stream.round > stream.delivered || stream.part > 0; });
  });
}

// ---- The end of a member.

bool Simulation::is_done(const MemberState& member, MemberId id) const {
  for (std::size_t index = 0; index < member.lanes.size(); ++index) {
    const LanePlan& plan = scenario_.lanes[index];
    if (!has(plan.set, id) || member.lanes[index].has_failed) continue;
    for (std::size_t stream = 0; stream < plan.streams.size(); ++stream) {
      const auto& rounds = plan.streams[stream];
      for (std::size_t i = member.lanes[index].streams[stream].delivered; i < rounds.size(); ++i) {
        if (!has(rounds[i].absent, id)) return false;
      }
    }
  }
  return true;
}

void Simulation::finish(MemberId id) {
  checker_.finish(id);
  if (std::exchange(at(id).is_leaving, true)) return;
  later({EventKind::kLeave, id}, some(id, scenario_.times.submit));
}

// The engine thread sends a Leave in good order, so that it waits for an install; a caller sends one of a failure.
void Simulation::leave(MemberId id, bool failed) {
  MemberState& member = at(id);
  const bool is_busy = member.phase == MemberPhase::kFreezing || member.phase == MemberPhase::kInstalling;
  if (member.phase == MemberPhase::kOut) return;
  if (!failed && is_busy) return later({EventKind::kLeave, id}, 20ms);
  const bool was_waiting = member.phase == MemberPhase::kWaiting;
  const bool with_process = !failed && remote_ == nullptr;
  const std::string kind = failed && scenario_.fails_alike ? "alike" : "";
  send_to_guard(id, Leave{failed, failed ? "an error" : "", kind, with_process});
  checker_.go_out(id, !failed);
  EpochRecord& shared = record(link_epoch(member));
  shared.connecting &= ~only(id);
  if (!was_waiting && (failed || has_in_flight(member)))
    tell_peers(id, EventKind::kPeerAborts, failed ? std::optional(id) : std::nullopt);
  const bool was_running = member.phase == MemberPhase::kRunning;
  member.phase = MemberPhase::kOut;
  for (LaneState& lane : member.lanes) lane.is_stopped = true;
  const bool is_failure = failed || (with_process && has(scenario_.failing_exits, id));
  const Duration takes = with_process ? random_.up_to(scenario_.exit_takes) : some(id, scenario_.times.freeze);
  later({EventKind::kProcessEnds, id, 0, 0, is_failure ? 0U : 1U}, takes);
  if (!was_running || failed) return;
  shared.left |= only(id);
  for (const MemberId peer : list_of(shared.members)) {
    if (at(peer).epoch == member.epoch) watch_left(peer);
  }
}

void Simulation::take(MemberId id, const Evicted&) {
  MemberState& member = at(id);
  if (member.phase == MemberPhase::kOut) return;
  if (member.phase != MemberPhase::kFrozen && member.phase != MemberPhase::kWaiting)
    tell_peers(id, EventKind::kPeerAborts, {});
  record(link_epoch(member)).connecting &= ~only(id);
  member.phase = MemberPhase::kOut;
  for (LaneState& lane : member.lanes) lane.is_stopped = true;
  later({EventKind::kProcessEnds, id}, some(id, scenario_.times.freeze));
}

void Simulation::end_process(MemberId id, bool succeeded) {
  MemberState& member = at(id);
  if (member.phase == MemberPhase::kEnded) return;
  const bool has_links = member.phase == MemberPhase::kRunning || member.phase == MemberPhase::kFreezing ||
                         member.phase == MemberPhase::kInstalling;
  if (has_links) tell_peers(id, EventKind::kPeerLost, {});
  record(link_epoch(member)).connecting &= ~only(id);
  member.phase = MemberPhase::kEnded;
  member.inbox.clear();
  checker_.go_out(id, succeeded);
  sign(EventKind::kSeesEnd, id, succeeded);
}

}  // namespace horo::sim
