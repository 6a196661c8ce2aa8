// Crashes, stops, hangs and failures of links, at a time or at a step of a member.
#include <algorithm>

#include "tests/elastic/simulation.h"

namespace horo::sim {
namespace {

using namespace std::chrono_literals;

constexpr Duration kLongSilence = 9'900ms;  // a little less than the guard's limit
constexpr Duration kOneByOne = 50ms;        // between the parts of a job that go on after a pause
constexpr Duration kLongestTurn = 2s;       // of the guard: a shorter pause is none
constexpr Duration kBeats = 3s;             // so long a member looks whether a peer answers

}  // namespace

bool EpochRecord::is_broken(MemberId one, MemberId other) const {
  const std::pair link = std::minmax(one, other);
  return std::find(broken.begin(), broken.end(), std::pair(link.first, link.second)) != broken.end();
}

void Simulation::plan_faults() {
  for (std::size_t i = 0; i < scenario_.faults.size(); ++i) {
    const bool is_of_joiner = scenario_.faults[i].member >= static_cast<MemberId>(scenario_.config.members);
    if (!scenario_.faults[i].moment && !is_of_joiner) later({EventKind::kFault, 0, 0, 0, i}, scenario_.faults[i].at);
  }
}

bool Simulation::reach(MemberId id, Moment moment) {
  for (FaultPlan& fault : scenario_.faults) {
    if (fault.member == id && fault.moment == moment && --fault.count == 0) inject(fault);
  }
  return at(id).phase != MemberPhase::kEnded;
}

void Simulation::inject(const FaultPlan& fault) {
  MemberState& member = at(fault.member);
  if (member.phase == MemberPhase::kEnded) return;
  switch (fault.kind) {
    case FaultKind::kCrash:
      return end_process(fault.member, false);
    case FaultKind::kStop:
      return stop(fault.member, fault.lasts);
    case FaultKind::kHang:
      member.hangs_until = now_ + fault.lasts;
      return checker_.allow_eviction(fault.member);
    case FaultKind::kLink:
      if (fault.member == fault.other) return;
      if (fault.is_lasting) bad_links_.emplace_back(fault.member, fault.other);
      return later({EventKind::kLinkFails, fault.member, link_epoch(member), 0, 0, fault.other}, 1ns);
    case FaultKind::kLeave:
    case FaultKind::kFailedLeave:
      return later({EventKind::kLeave, fault.member, 0, 0, fault.kind == FaultKind::kFailedLeave ? 1U : 0U}, 1ns);
    case FaultKind::kPauseGuard:
    case FaultKind::kPauseJob:
      return pause(fault);
  }
}

void Simulation::stop(MemberId id, Duration time) {
  if (at(id).is_stopped) return;
  at(id).is_stopped = true;
  if (time > kLongSilence) checker_.allow_eviction(id);
  sign(EventKind::kSeesStop, id, false);
  later({EventKind::kContinue, id}, time);
}

// The messages and the data of peers that have come in the meantime are taken in any order.
void Simulation::go_on(MemberId id, bool is_seen) {
  MemberState& member = at(id);
  if (member.phase == MemberPhase::kEnded) return;
  member.is_stopped = false;
  if (is_seen) sign(EventKind::kSeesContinue, id, false);
  for (const SimEvent& event : std::exchange(member.deferred, {})) later(event, random_.up_to(2ms));
}

void Simulation::pause_member(MemberId id, Duration time) {
  if (std::exchange(at(id).is_stopped, true)) return;
  later({EventKind::kContinue, id, 0, 0, 1}, time);
}

// The parts of a paused job go on one after the other.
void Simulation::pause(const FaultPlan& fault) {
  ++report_.pauses;
  const bool is_of_all = fault.kind == FaultKind::kPauseJob;
  for (MemberId id = 0; is_of_all && id < count(); ++id) pause_member(id, fault.lasts + random_.up_to(kOneByOne));
  if (remote_ != nullptr) return remote_->pause(fault.member, is_of_all, fault.lasts);
  guard_runs_ = std::max(guard_runs_, now_ + fault.lasts + random_.up_to(kOneByOne));
  if (fault.lasts > kLongestTurn) checker_.pause(guard_runs_);
}

// When it goes on, timers may fire before it reads what has come.
bool Simulation::waits_for_guard(const SimEvent& event) {
  if (event.kind > EventKind::kGuardTimer || now_ >= guard_runs_) return false;
  const bool is_message = event.kind == EventKind::kMemberMessage;
  const bool is_late = is_message || (event.kind == EventKind::kGuardTimer && random_.one_in(2));
  queue_.push(event, guard_runs_ + (is_late ? 1ms : 0ms));
  return true;
}

// ---- Members that the guard misses.

void Simulation::take(MemberId id, const Missed& message) {
  at(id).missed = message.members;
  if (message.members.empty() || std::exchange(at(id).looks_at_missed, true)) return;
  later({EventKind::kLooksAtMissed, id}, random_.up_to(kBeats));
}

// As the failure detector of an engine: a member that something is in flight with freezes if a peer does not answer.
void Simulation::look_at_missed(MemberId id) {
  MemberState& member = at(id);
  member.looks_at_missed = false;
  if (member.missed.empty() || member.phase == MemberPhase::kOut) return;
  const bool waits = member.phase == MemberPhase::kRunning && has_in_flight(member);
  for (const MemberId peer : member.missed) {
    const bool is_silent = at(peer).is_stopped || at(peer).hangs_until > now_ ||
                           at(peer).phase == MemberPhase::kEnded || is_cut(id, peer) || is_cut(peer, id);
    if (!waits || !is_silent) continue;
    ++report_.found_silent;
    return begin_freeze(id, peer, {});
  }
  member.looks_at_missed = true;
  later({EventKind::kLooksAtMissed, id}, kBeats);
}

// Both members see it, and name one another.
void Simulation::break_link(MemberId one, MemberId other) {
  const std::uint32_t epoch = link_epoch(at(one));
  EpochRecord& shared = record(epoch);
  const bool has_links = at(one).phase == MemberPhase::kRunning || at(one).phase == MemberPhase::kInstalling;
  if (!has_links || link_epoch(at(other)) != epoch || shared.is_broken(one, other)) return;
  shared.broken.emplace_back(std::min(one, other), std::max(one, other));
  checker_.count_link_failure(one, other, epoch);
  later({EventKind::kPeerLost, one, epoch, 0, 0, other}, some(one, scenario_.times.link));
  later({EventKind::kPeerLost, other, epoch, 0, 0, one}, some(other, scenario_.times.link));
}

void Simulation::fail_links_again(MemberId id) {
  for (const auto& [one, other] : bad_links_) {
    const MemberId peer = one == id ? other : one;
    const bool is_ready = at(peer).phase == MemberPhase::kRunning && at(peer).epoch == at(id).epoch;
    if ((one == id || other == id) && is_ready) {
      later({EventKind::kLinkFails, one, at(id).epoch, 0, 0, other}, random_.up_to(20ms));
    }
  }
}

}  // namespace horo::sim
