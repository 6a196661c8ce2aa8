// One run of the simulator with several hosts. Its functions are in hosts_simulation.cc (the run), hosts_rendezvous.cc,
// hosts_agents.cc, hosts_guards.cc and hosts_network.cc (calls and partitions).
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "elastic/service/rendezvous_core.h"
#include "tests/elastic/service/memory_store.h"
#include "tests/elastic/service/rendezvous_simulator.h"
#include "tests/elastic/simulation.h"

namespace horo::sim {

inline constexpr std::uint64_t kFirstIncarnation = 0xabc0;
inline constexpr std::chrono::seconds kLongestTurn{2};  // a pause that is shorter is none

// What a guard knows of a member, as in tools/horo/run/remote_decision.cc.
struct GuardedMember {
  std::uint32_t viewed = 0;
  std::optional<std::uint32_t> asked;
  std::optional<Installed> installed;
  std::optional<Frozen> frozen;
  std::optional<Leave> left;
  bool is_stopped = false;
  std::optional<MemberEnded> ended;

  void note(const MemberEnded& event) { ended = event; }
  void note(const MemberStopped&) { is_stopped = true; }
  void note(const MemberDrained&) {}
  void note(const MemberContinued&) { is_stopped = false; }
  void note(const MemberSent& event);
  MemberPast past(MemberId id, HostsFault fault) const;
  bool is_parked() const { return frozen && viewed <= frozen->epoch && !left && !ended; }
};

struct SimHost {
  std::vector<MemberId> members;
  std::uint64_t agent = 0;         // rises with each registration that the agent begins, and with its end
  bool is_away = true;             // no agent has asked for the past
  bool is_registering = false;     // one is to begin
  std::uint64_t registration = 0;  // that the agent has; 0: none
  bool is_reporting = false;       // a report has no answer yet
  bool is_dead = false;            // the guard has ended, and all with it
  bool has_contact = false;        // of the agent with the rendezvous
  bool is_locked_out = false;      // the guard was told so
  std::uint64_t park = 0;          // the number of the guard's timer; 0: none
  TimePoint guard_runs{};          // the guard is paused until then
  TimePoint up{};                  // the last request of the agent arrives then, and the last order
  TimePoint down{};
  TimePoint given_up{};              // the last registration of the agent
  TimePoint up_cut{}, down_cut{};    // until then
  std::optional<TimePoint> heard{};  // the rendezvous has heard the host last
  Duration unreached{};              // so long in all
  std::deque<HostEvent> waiting;     // until the agent is registered
  JobView job;                       // as the guard knows it
};

enum class Served { kDone, kNotRegistered, kEvicted, kGone };

struct AgentCall {
  std::size_t host = 0;
  Duration limit{};
  bool connects = false;  // it is the first of a connection
  std::function<Served()> serve;
  std::function<void(Served)> answered;
  TimePoint begins{};  // the connection, if it is the first
};

// Which messages are lost in a partition: those of the members, of the agents, or both; of the host to the others, to
// the host from the others, or both.
struct Partition {
  std::size_t host = 0;
  std::optional<std::size_t> other;  // members: to this host alone
  bool has_data = false, has_control = false;
  bool is_out = false, is_in = false;
  bool is_lasting = false;
  Duration lasts{};
};

class HostsSimulation final : public RemoteDecision {
 public:
  HostsSimulation(std::uint64_t seed, HostsFault fault);
  HostsReport run();
  void take(const HostEvent& event) override;
  void pause(MemberId id, bool is_of_all, Duration time) override;
  void on_time(std::uint64_t number) override;

 private:
  void draw_hosts();
  void plan_outages();
  bool is_planted(HostsFault fault) const { return fault_ == fault; }
  bool have_all_ended();
  void after(Duration delay, std::function<void()> call);
  std::size_t host_of(MemberId id) const;
  void fail_store(std::uint64_t next_write);
  void tick();

  // ---- The rendezvous.
  void start_core();
  void crash();
  void restart();
  void core_lost();
  void forget();
  void draw_crash_of_order();
  Registration register_in_core(const HostHello& hello);
  Served on_core(const std::function<void()>& call);
  void pass_time();
  void set_timer();
  void wait_for_park(std::size_t index);
  void on_decided();
  void check_eviction(MemberId id, const std::string& why);
  void check_need(MemberId id);
  void note_heard(std::size_t index) { hosts_[index].heard = now(); }
  void tell_core_of_ends(std::size_t index);

  // ---- Agents.
  void lose_agent(std::size_t index, Duration pause, bool is_outage = true);
  void lose_contact(std::size_t index);
  void register_later(std::size_t index, Duration pause);
  void ask_past(std::size_t index);
  void report(std::size_t index);
  Served serve_report(std::size_t index, std::uint64_t number, const std::vector<HostEvent>& events);
  void beat_later(std::size_t index);
  void pump(std::size_t index);
  void send_order(std::size_t index, const HostOrder& order);
  void deliver(std::size_t index, std::uint64_t agent, const HostOrder& order);

  // ---- Guards.
  void lose_host(std::size_t index);
  void update_park(std::size_t index);
  void lock_out(std::size_t index);
  void end_park(std::size_t index);
  void carry_out(std::size_t index, const SendToMembers& order);
  void guard_passes(MemberId id, const GuardMessage& message);
  void carry_out(std::size_t, const StoryTold&) {}
  void carry_out(std::size_t index, const EndJob&);
  void carry_out(std::size_t index, const JobChanged& order);

  // ---- Pauses.
  void cut_agent(std::size_t index, Duration time);
  void pause_guard(SimHost& host, Duration time);
  void pause_core(Duration time);
  bool waits_for_core(std::size_t index, const std::function<void()>& call);
  void plant_need();
  bool waits_for_guard(std::size_t index, const std::function<void()>& call);
  void cut_rendezvous(Duration time);

  // ---- The network.
  TimePoint arrival(TimePoint& last, TimePoint cut_until);
  void call(AgentCall call);
  void serve(const std::shared_ptr<AgentCall>& call, std::uint64_t agent);
  void give_up(const std::shared_ptr<AgentCall>& call, std::uint64_t agent);
  void plan_partitions();
  Partition draw_partition();
  void begin_partition(const Partition& partition);
  void cut_members(const Partition& partition, TimePoint until);
  void cut_agents(const Partition& partition, TimePoint until);
  void note_unreached(std::size_t index, Duration time);
  void look_at_links(const Partition& partition, Duration period, TimePoint until);
  void end_partition(const Partition& partition);
  void count_partition(const Partition& partition);

  TimePoint now() const { return simulation_.now(); }

  const HostsFault fault_;
  SplitMix random_;
  Simulation simulation_;
  JobSpec spec_;
  MemoryStore store_, spare_;
  StoredRecord last_record_, record_before_;
  std::unique_ptr<RendezvousCore> core_;    // null: it is away
  TimePoint core_started_{}, core_runs_{};  // it is paused until then
  Duration core_lag_{};                     // planted: its time, until the first host registers
  bool is_embedded_ = false;                // on host 0
  JobRecord decided_;
  std::vector<SimHost> hosts_;
  std::map<MemberId, GuardedMember> known_;
  std::map<std::uint32_t, JobKey> secrets_;  // by epoch: the first
  std::map<std::uint64_t, std::function<void()>> pending_;
  std::uint64_t serial_ = 0;
  Duration latency_{};
  std::uint64_t loses_one_in_ = 0;  // calls; 0: none
  std::optional<TimePoint> timer_;
  std::uint64_t orders_left_ = 0;
  std::vector<Partition> open_;         // partitions
  std::optional<std::size_t> serving_;  // a call of this host
  HostsReport report_;
};

}  // namespace horo::sim
