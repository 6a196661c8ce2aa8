#include "tests/elastic/simulator.h"

#include <algorithm>

#include "tests/elastic/simulation.h"

namespace horo::sim {
namespace {

using namespace std::chrono_literals;

constexpr Duration kVirtualLimit = 30min;
constexpr Duration kStartTimeout = 60s;
constexpr std::uint64_t kMostEvents = 100'000;  // of a run; the most is about 3,000
constexpr Duration kEndPatience = 5s;           // of evicted processes, when the job is over

}  // namespace

SimReport simulate(std::uint64_t seed, Planted planted, bool joins) {
  return Simulation(seed, planted, joins).run();
}

SimReport& SimReport::operator+=(const SimReport& other) {
  for (const auto count : {&SimReport::events,
                           &SimReport::epochs,
                           &SimReport::deliveries,
                           &SimReport::commits_settled,
                           &SimReport::commits_dropped,
                           &SimReport::late_passes,
                           &SimReport::installs_cancelled,
                           &SimReport::install_timeouts,
                           &SimReport::repeated_frozen,
                           &SimReport::evictions,
                           &SimReport::links_given_up,
                           &SimReport::parks,
                           &SimReport::ends_by_park,
                           &SimReport::failed_lanes,
                           &SimReport::settles,
                           &SimReport::fail_alike,
                           &SimReport::failed_exits,
                           &SimReport::held_messages,
                           &SimReport::pauses,
                           &SimReport::found_silent,
                           &SimReport::started,
                           &SimReport::joined,
                           &SimReport::synced,
                           &SimReport::refused,
                           &SimReport::empty_borders,
                           &SimReport::broken_borders,
                           &SimReport::states_lost,
                           &SimReport::waits_for_joiners}) {
    this->*count += other.*count;
  }
  return *this;
}

Simulation::Simulation(std::uint64_t seed, Planted planted, bool joins)
    : planted_(planted),
      scenario_(joins ? draw_growing_scenario(seed) : draw_scenario(seed)),
      random_(seed ^ 0x5eed),
      checker_(seed, scenario_),
      guard_(scenario_.config, planted),
      members_(scenario_.slowness.size()) {
  const auto first = static_cast<MemberId>(scenario_.config.members);
  record(0).members = only(first) - 1;
  for (MemberId id = 0; id < count(); ++id) {
    MemberState& member = at(id);
    member.view.members = guard_.real().members();
    member.has_state = id < first;
    member.lanes.resize(scenario_.lanes.size());
    for (std::size_t lane = 0; lane < member.lanes.size(); ++lane) {
      member.lanes[lane].streams.resize(scenario_.lanes[lane].streams.size());
    }
    if (id >= first) {
      member.phase = MemberPhase::kEnded;
      continue;
    }
    later({EventKind::kSettled, id}, some(id, scenario_.times.connect));
    later({EventKind::kInstallTimeout, id}, kStartTimeout);
    if (scenario_.joins.most > 0) later({EventKind::kSaysCanGrow, id}, some(id, scenario_.joins.can_grow));
  }
  plan_faults();
  for (const Duration start : scenario_.joins.starts) plan_start(start);
}

SimReport Simulation::run() {
  const auto is_in_time = [this] {
    return queue_.count() < kMostEvents && queue_.next_time() < TimePoint{} + kVirtualLimit;
  };
  while (!queue_.is_empty() && !checker_.is_violated() && is_in_time()) {
    now_ = queue_.next_time();
    dispatch(queue_.pop());
  }
  if (!checker_.is_violated()) check_end();
  report_.violation = checker_.violation();
  report_.trace = queue_.trace();
  report_.events = queue_.count();
  return report_;
}

void Simulation::check_end() {
  for (MemberId id = 0; id < count(); ++id) {
    if (at(id).phase == MemberPhase::kEnded) continue;
    checker_.violate("member " + std::to_string(id) + " does not end: it is in epoch " + std::to_string(at(id).epoch) +
                     ", phase " + std::to_string(static_cast<int>(at(id).phase)));
  }
  checker_.end();
}

// ---- Events.

Duration Simulation::some(MemberId id, Duration most) {
  return random_.up_to(most) * scenario_.slowness[id];
}

void Simulation::dispatch(const SimEvent& event) {
  if (event.kind >= EventKind::kMemberMessage) {
    if (!waits_for_guard(event)) handle_guard(event);
    return;
  }
  if (at(event.member).phase == MemberPhase::kEnded || is_deferred(event)) return;
  event.kind >= EventKind::kRelease ? handle_lane(event) : handle_engine(event);
}

// A stopped process does nothing; an engine that hangs leaves its lanes running. Messages wait in the socket.
bool Simulation::is_deferred(const SimEvent& event) {
  MemberState& member = at(event.member);
  const bool hangs = member.hangs_until > now_ && event.kind < EventKind::kRelease;
  if (!member.is_stopped && !hangs) return false;
  SimEvent later_event = event;
  if (event.kind == EventKind::kGuardMessage && event.number == 0) {
    ++member.arrived;
    later_event.number = 1;
  }
  if (member.is_stopped) {
    member.deferred.push_back(later_event);
  } else {
    queue_.push(later_event, member.hangs_until + random_.up_to(1ms));
  }
  return true;
}

void Simulation::handle_engine(const SimEvent& event) {
  MemberState& member = at(event.member);
  switch (event.kind) {
    case EventKind::kSubmit:
      return submit(event);
    case EventKind::kGuardMessage:
      if (event.number == 0) ++member.arrived;
      if (event.number == 0 && scenario_.reads_late && member.phase == MemberPhase::kFrozen) {
        return later({EventKind::kGuardMessage, event.member, 0, 0, 1}, some(event.member, 4 * scenario_.times.guard));
      }
      return read_inbox(event.member);
    case EventKind::kFreezeDone:
      return end_freeze(event.member);
    case EventKind::kPatienceEnds:
      return on_patience(event);
    case EventKind::kSettled:
      return connect(event.member, event.epoch);
    case EventKind::kConnected:
      if (member.phase == MemberPhase::kInstalling && member.installing == event.epoch) end_install(event.member);
      return;
    case EventKind::kInstallTimeout:
      if (member.phase != MemberPhase::kInstalling || member.installing != event.epoch) return;
      ++report_.install_timeouts;
      return miss_in_install(event.member);
    case EventKind::kLooksAtMissed:
      return look_at_missed(event.member);
    case EventKind::kLeave:
      return leave(event.member, event.number != 0);
    case EventKind::kProcessEnds:
      return end_process(event.member, event.number != 0);
    case EventKind::kPeerLost:
    case EventKind::kPeerAborts:
      return on_peer(event);
    default:
      return on_join(event);
  }
}

void Simulation::handle_lane(const SimEvent& event) {
  switch (event.kind) {
    case EventKind::kRelease: {
      MemberState& member = at(event.member);
      if (member.epoch != event.epoch || !is_at_work(member, event.lane)) return;
      LaneState& lane = member.lanes[event.lane];
      lane.known = std::max(lane.known, event.number);
      return advance(event.member, event.lane);
    }
    case EventKind::kDataDone:
      return end_data(event);
    case EventKind::kObserved:
      return observe(event);
    default:
      return end_barrier(event);
  }
}

void Simulation::handle_guard(const SimEvent& event) {
  switch (event.kind) {
    case EventKind::kMemberMessage:
      if (at(event.member).outbox.empty()) return;  // read before the end of the process
      {
        const MemberMessage message = std::move(at(event.member).outbox.front());
        at(event.member).outbox.pop_front();
        return guard_takes(MemberSent{event.member, message});
      }
    case EventKind::kSeesStop:
      return guard_takes(MemberStopped{event.member});
    case EventKind::kSeesContinue:
      return guard_takes(MemberContinued{event.member});
    case EventKind::kSeesEnd:
      read_outbox(event.member);
      return guard_takes(MemberEnded{event.member, event.number != 0, "signal 9 (SIGKILL)"});
    case EventKind::kGuardTimer:
      if (timer_ == now_) timer_.reset();
      return guard_takes(TimePassed{});
    case EventKind::kFault:
      return inject(scenario_.faults[event.number]);
    case EventKind::kContinue:
      return go_on(event.member, event.number == 0);
    case EventKind::kLinkFails:
      if (link_epoch(at(event.member)) == event.epoch) break_link(event.member, event.from);
      return;
    case EventKind::kStarts:
      return start_process(event.number);
    case EventKind::kRemote:
      return remote_->on_time(event.number);
    default:
      return kill(event.number != 0);
  }
}

// ---- Messages: each socket keeps their order.

void Simulation::send_to_guard(MemberId id, const MemberMessage& message) {
  MemberState& member = at(id);
  member.outbox.push_back(message);
  member.outbox_last = std::max(member.outbox_last, now_ + some(id, scenario_.times.guard));
  queue_.push({EventKind::kMemberMessage, id}, member.outbox_last);
}

void Simulation::send_to_member(MemberId id, const GuardMessage& message) {
  MemberState& member = at(id);
  member.inbox.push_back(message);
  member.inbox_last = std::max(member.inbox_last, now_ + some(id, scenario_.times.guard));
  queue_.push({EventKind::kGuardMessage, id}, member.inbox_last);
}

// What the parent of the process sees.
void Simulation::sign(EventKind kind, MemberId id, bool succeeded) {
  MemberState& member = at(id);
  member.signs_last = std::max(member.signs_last, now_ + random_.up_to(scenario_.times.guard));
  queue_.push({kind, id, 0, 0, succeeded ? 1U : 0U}, member.signs_last);
}

// A member in connect() sees a Freeze of its epoch and Evicted; the messages wait while the lanes stop.
void Simulation::read_inbox(MemberId id) {
  MemberState& member = at(id);
  while (member.arrived > 0 && member.phase != MemberPhase::kFreezing && member.phase != MemberPhase::kEnded) {
    const GuardMessage message = std::move(member.inbox.front());
    member.inbox.pop_front();
    --member.arrived;
    const bool is_view = std::holds_alternative<View>(message);
    if (is_view && planted_ == Planted::kForgetsAFreezeBehindAView) {
      member.inbox.erase(member.inbox.begin(), member.inbox.begin() + static_cast<std::ptrdiff_t>(member.arrived));
      member.arrived = 0;
    }
    std::visit([&](const auto& one) { take(id, one); }, message);
  }
}

void Simulation::read_outbox(MemberId id) {
  for (const MemberMessage& message : std::exchange(at(id).outbox, {})) guard_takes(MemberSent{id, message});
}

// ---- Guard.

void Simulation::guard_takes(const MembershipEvent& event) {
  if (remote_ != nullptr) {
    if (const auto* one = std::get_if<MemberSent>(&event)) remote_->take(*one);
    if (const auto* one = std::get_if<MemberStopped>(&event)) remote_->take(*one);
    if (const auto* one = std::get_if<MemberContinued>(&event)) remote_->take(*one);
    if (const auto* one = std::get_if<MemberEnded>(&event)) remote_->take(*one);
    return;
  }
  std::vector<HostEvent> told = exits_.pass_time(now_);
  const auto add = [&](const HostEvent& one) {
    for (HostEvent& more : exits_.on(one, now_)) told.push_back(std::move(more));
  };
  if (const auto* one = std::get_if<MemberSent>(&event)) add(*one);
  if (const auto* one = std::get_if<MemberStopped>(&event)) add(*one);
  if (const auto* one = std::get_if<MemberContinued>(&event)) add(*one);
  if (const auto* one = std::get_if<MemberEnded>(&event)) add(*one);
  for (const HostEvent& one : told) std::visit([this](const auto& kind) { decide(kind); }, one);
  if (std::holds_alternative<TimePassed>(event) || std::holds_alternative<MemberStarted>(event)) decide(event);
  const auto exit = exits_.next_deadline();
  const auto next = guard_.next_deadline();
  const auto due = exit && next ? std::min(exit, next) : exit ? exit : next;
  if (!due || timer_ == due) return;
  timer_ = due;
  queue_.push({EventKind::kGuardTimer}, std::max(*due, now_));
}

void Simulation::decide(const MembershipEvent& event) {
  const auto* sent = std::get_if<MemberSent>(&event);
  const auto* frozen = sent != nullptr ? std::get_if<Frozen>(&sent->message) : nullptr;
  if (frozen != nullptr && frozen->epoch < guard_.real().epoch()) ++report_.repeated_frozen;
  const auto* leave = sent != nullptr ? std::get_if<Leave>(&sent->message) : nullptr;
  if (leave != nullptr && leave->failed) checker_.take_back(sent->id);
  if (leave != nullptr && leave->failed && guard_.real().state_of(sent->id).word == "left") ++report_.failed_exits;
  const bool was_parked = guard_.real().is_parked();
  const std::uint32_t epoch = guard_.real().epoch();
  if (scenario_.joins.most > 0) checker_.hear(event, epoch, now_);
  for (const MembershipAction& action : guard_.on(event, now_)) {
    if (std::holds_alternative<EndJob>(action)) end_job();
    const auto* say = std::get_if<Say>(&action);
    if (say != nullptr && say->text.find("failed in the same way") != std::string::npos) ++report_.fail_alike;
    const auto* send = std::get_if<SendToMember>(&action);
    if (send == nullptr) continue;
    if (const auto* evicted = std::get_if<Evicted>(send->message.get())) {
      ++report_.evictions;
      if (evicted->reason.find("lost one another") != std::string::npos) ++report_.links_given_up;
      checker_.evict(send->id, epoch, now_);
    }
    if (scenario_.joins.most > 0) count_joins(*send->message, send->id);
    pass_on(send->id, *send->message);
  }
  report_.epochs = guard_.real().epoch();
  if (guard_.real().is_parked() && !was_parked) ++report_.parks;
  const bool is_left = was_parked && !guard_.real().is_parked() && guard_.real().epoch() > epoch;
  if (const auto* ready = sent != nullptr ? std::get_if<Ready>(&sent->message) : nullptr; ready != nullptr && is_left)
    ++report_.waits_for_joiners;
  if (scenario_.joins.most > 0 && !guard_.real().is_over()) checker_.end_turn(guard_.real().is_parked());
  const bool is_end = std::holds_alternative<MemberEnded>(event);
  if (is_end && scenario_.joins.most > 0) plan_start(random_.up_to(scenario_.joins.replaced));
  if (!is_over_ && guard_.real().is_over()) {
    is_over_ = true;
    later({EventKind::kKill, 0, 0, 0, 1}, 1us);
    later({EventKind::kKill}, kEndPatience);
  }
}

void Simulation::pass_on(MemberId id, const GuardMessage& message) {
  if (const auto* view = std::get_if<View>(&message)) {
    checker_.send(id, *view);
    record(view->epoch);
    epochs_[view->epoch].members = 0;
    for (const MemberId one : view->members) epochs_[view->epoch].members |= only(one);
  }
  if (const auto* settle = std::get_if<Settle>(&message)) checker_.send(id, *settle);
  send_to_member(id, message);
}

// Only a job of too few members ends before they do.
void Simulation::end_job() {
  ++report_.ends_by_park;
  MemberSet here = 0;
  for (MemberId id = 0; id < count(); ++id) {
    const bool is_here = at(id).phase != MemberPhase::kOut && at(id).phase != MemberPhase::kEnded;
    if (is_here && at(id).has_state && !guard_.real().is_evicted(id)) here |= only(id);
  }
  if (here == 0 && scenario_.joins.most > 0) ++report_.states_lost;
  if (here != 0) here |= checker_.waiting();
  if (checker_.is_enough(here)) checker_.violate("the job ends although it has enough members");
  kill(false);
}

void Simulation::kill(bool stopped_only) {
  for (MemberId id = 0; id < count(); ++id) {
    if (at(id).phase != MemberPhase::kEnded && (at(id).is_stopped || !stopped_only)) end_process(id, false);
  }
}

EpochRecord& Simulation::record(std::uint32_t epoch) {
  while (epochs_.size() <= epoch) {
    EpochRecord& added = epochs_.emplace_back();
    added.lanes.resize(scenario_.lanes.size());
    for (EpochLane& lane : added.lanes) {
      lane.observed.assign(scenario_.slowness.size(), std::vector<std::uint64_t>(scenario_.slowness.size()));
    }
  }
  return epochs_[epoch];
}

}  // namespace horo::sim
