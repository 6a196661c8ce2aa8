// One run of the simulator. Its functions are in simulator.cc (events, messages, guard), simulation_members.cc
// (freeze, settle, install, leave), simulation_lanes.cc (collectives), simulation_joins.cc, simulation_faults.cc and
// simulation_partitions.cc.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "elastic/exits.h"
#include "elastic/host_messages.h"
#include "tests/elastic/event_queue.h"
#include "tests/elastic/planted.h"
#include "tests/elastic/run_checker.h"
#include "tests/elastic/scenario.h"
#include "tests/elastic/simulated_state.h"
#include "tests/elastic/simulator.h"

namespace horo::sim {

// It is decided elsewhere, and not by the guard that sees the member.
class RemoteDecision {
 public:
  virtual ~RemoteDecision() = default;
  // The guard of the member's host has seen this.
  virtual void take(const HostEvent& event) = 0;
  // The parts of the job that decide, and the guard of this member, or all parts, do not run for a while.
  virtual void pause(MemberId id, bool is_of_all, Duration time) = 0;
  // A kRemote event with this number is due.
  virtual void on_time(std::uint64_t number) = 0;
};

class Simulation {
 public:
  Simulation(std::uint64_t seed, Planted planted, bool joins = false);
  // ---- For a RemoteDecision.
  void decide_by(RemoteDecision& remote) { remote_ = &remote; }
  TimePoint now() const { return now_; }
  const Scenario& scenario() const { return scenario_; }
  RunChecker& checker() { return checker_; }
  void later(std::uint64_t number, Duration delay) { later({EventKind::kRemote, 0, 0, 0, number}, delay); }
  void pass_on(MemberId id, const GuardMessage& message);  // to the member
  void end_member(MemberId id) { end_process(id, false); }
  bool is_here(MemberId id) { return at(id).phase != MemberPhase::kOut && at(id).phase != MemberPhase::kEnded; }
  bool is_stopped(MemberId id) { return at(id).is_stopped; }
  void pause_member(MemberId id, Duration time);
  bool has_ended(MemberId id) { return at(id).phase == MemberPhase::kEnded; }
  // Nothing that one member sends to the other arrives until then.
  void cut(MemberId from, MemberId to, TimePoint until);
  // The member sees that a link of its is cut, if it needs one that is.
  void miss_peer(MemberId id);

  SimReport run();

 private:
  // ---- Events.
  void later(const SimEvent& event, Duration delay) { queue_.push(event, now_ + delay); }
  Duration some(MemberId id, Duration most);  // a random time of a step of the member
  void dispatch(const SimEvent& event);
  void handle_engine(const SimEvent& event);
  void handle_lane(const SimEvent& event);
  void handle_guard(const SimEvent& event);
  bool is_deferred(const SimEvent& event);
  void check_end();

  // ---- Messages.
  void send_to_guard(MemberId id, const MemberMessage& message);
  void send_to_member(MemberId id, const GuardMessage& message);
  void sign(EventKind kind, MemberId id, bool succeeded);
  void read_inbox(MemberId id);
  void take(MemberId id, const Freeze& freeze);
  void take(MemberId id, const View& view);
  void take(MemberId id, const Settle& settle);
  void take(MemberId id, const Parked&) { static_cast<void>(id); }
  void take(MemberId id, const Evicted&);
  void take(MemberId id, const Missed& message);
  void take(MemberId id, const Ask&) { static_cast<void>(id); }
  void take(MemberId id, const Drain&) { static_cast<void>(id); }
  void take(MemberId id, const Grow& grow);

  // ---- Guard.
  void guard_takes(const MembershipEvent& event);
  void decide(const MembershipEvent& event);
  void read_outbox(MemberId id);
  void end_job();
  void kill(bool stopped_only);

  // ---- Members.
  void begin_freeze(MemberId id, std::optional<MemberId> lost, std::optional<MemberId> told);
  void end_freeze(MemberId id);
  void send_frozen(MemberId id, std::uint32_t epoch, std::optional<MemberId> lost);
  void settle(MemberId id);
  void begin_install(MemberId id);
  void connect(MemberId id, std::uint32_t epoch);
  void cancel_install(MemberId id, std::optional<MemberId> lost);
  void end_install(MemberId id);
  void enter_epoch(MemberId id);
  void on_peer(const SimEvent& event);
  void on_patience(const SimEvent& event);
  void tell_peers(MemberId id, EventKind kind, std::optional<MemberId> lost);
  void finish(MemberId id);
  void leave(MemberId id, bool failed);
  void end_process(MemberId id, bool succeeded);
  bool has_in_flight(const MemberState& member) const;
  bool is_done(const MemberState& member, MemberId id) const;
  std::uint32_t link_epoch(const MemberState& member) const;

  // ---- Joins.
  void plan_start(Duration delay);
  void start_process(std::uint64_t tries);
  void on_join(const SimEvent& event);
  void say_ready(MemberId id);
  void begin_growth(MemberId id);
  void agree_on_place(std::uint32_t epoch);
  bool is_held(MemberState& member, std::uint32_t lane, std::uint32_t stream) const;
  void come_to_place(MemberId id);
  void leave_epoch(MemberId id);
  void begin_transfers(std::uint32_t epoch);
  void end_transfer(MemberId id);
  void begin_program(MemberId id);
  void count_joins(const GuardMessage& message, MemberId id);

  // ---- Lanes.
  void submit(const SimEvent& event);
  void skip_absent(MemberId id, std::uint32_t lane, std::uint32_t stream);
  void report(MemberId id, std::uint32_t lane, std::uint32_t stream);
  void release(std::uint32_t epoch, std::uint32_t lane, std::uint32_t stream);
  void watch_left(MemberId id);
  void watch_gone(MemberId id);
  void advance(MemberId id, std::uint32_t lane);
  void begin_data(MemberId id, std::uint32_t lane);
  void end_data(const SimEvent& event);
  void observe(const SimEvent& event);
  void try_barrier(MemberId id, std::uint32_t lane);
  void end_barrier(const SimEvent& event);
  void deliver(MemberId id, std::uint32_t lane, std::vector<Delivery> commit);
  bool is_at_work(const MemberState& member, std::uint32_t lane) const;
  EpochLane& lane_of(std::uint32_t epoch, std::uint32_t lane) { return record(epoch).lanes[lane]; }
  Delivery delivery_of(MemberId id, std::uint32_t lane, std::uint64_t number);
  const RoundPlan& plan_of(std::uint32_t lane, const ReleasedCollective& one) const {
    return scenario_.lanes[lane].streams[one.stream][one.round];
  }

  // ---- Faults.
  void plan_faults();
  bool reach(MemberId id, Moment moment);  // false: the member has ended there
  void inject(const FaultPlan& fault);
  void stop(MemberId id, Duration time);
  void go_on(MemberId id, bool is_seen);
  void pause(const FaultPlan& fault);
  bool waits_for_guard(const SimEvent& event);
  void look_at_missed(MemberId id);
  void break_link(MemberId one, MemberId other);
  void fail_links_again(MemberId id);

  // ---- Partitions.
  void miss_in_install(MemberId id);
  bool is_cut(MemberId from, MemberId to) const;
  Duration cut_left(MemberId from, MemberId to);  // for a message that is sent now
  Duration longest_cut(MemberSet from, MemberId to, bool is_both_ways = false);
  std::optional<MemberId> cut_peer(MemberId id, MemberSet peers);
  void count_cut(MemberId id, MemberId peer, std::uint32_t epoch);

  EpochRecord& record(std::uint32_t epoch);
  MemberState& at(MemberId id) { return members_[id]; }
  bool is_odd(MemberId id, Planted planted) const { return planted_ == planted && scenario_.odd_member == id; }
  MemberId count() const { return static_cast<MemberId>(members_.size()); }

  const Planted planted_;
  Scenario scenario_;
  SplitMix random_;
  RunChecker checker_;
  PlantedMembership guard_;
  Exits exits_;
  RemoteDecision* remote_ = nullptr;  // in the place of guard_
  EventQueue queue_;
  TimePoint now_{};
  std::vector<MemberState> members_;
  std::deque<EpochRecord> epochs_;
  std::vector<std::pair<MemberId, MemberId>> bad_links_;     // they fail in every epoch
  std::map<std::pair<MemberId, MemberId>, TimePoint> cuts_;  // from one member to another: until then
  std::optional<TimePoint> timer_;
  TimePoint guard_runs_{};     // it is paused until then
  std::uint32_t started_ = 0;  // of those that may join
  bool is_over_ = false;
  SimReport report_;
};

}  // namespace horo::sim
