// Parts of the job that do not run for a while: the rendezvous, the guard of a host, a whole host, or the whole job.
// When a part goes on, its timers may fire before it reads what has come.
#include <algorithm>

#include "tests/elastic/service/hosts_simulation.h"

namespace horo::sim {
namespace {

using namespace std::chrono_literals;

constexpr Duration kOneByOne = 50ms;

}  // namespace

void HostsSimulation::pause(MemberId id, bool is_of_all, Duration time) {
  ++report_.pauses;
  const std::size_t index = host_of(id);
  if (is_of_all) {
    ++report_.job_pauses;
    for (SimHost& host : hosts_) pause_guard(host, time);
    for (std::size_t host = 0; host < hosts_.size(); ++host) cut_agent(host, time);
    return pause_core(time);
  }
  switch (random_.below(3)) {
    case 0:
      ++report_.core_pauses;
      return pause_core(time);
    case 1:
      note_unreached(index, time);
      return pause_guard(hosts_[index], time);
    default:
      note_unreached(index, time);
      pause_guard(hosts_[index], time);
      cut_agent(index, time);
      for (const MemberId member : hosts_[index].members)
        simulation_.pause_member(member, time + random_.up_to(kOneByOne));
      if (is_embedded_ && index == 0) pause_core(time);
  }
}

// An agent that does not run sends nothing and takes nothing.
void HostsSimulation::cut_agent(std::size_t index, Duration time) {
  SimHost& host = hosts_[index];
  const TimePoint until = now() + time + random_.up_to(kOneByOne);
  host.up_cut = std::max(host.up_cut, until);
  host.down_cut = std::max(host.down_cut, until);
}

void HostsSimulation::pause_guard(SimHost& host, Duration time) {
  host.guard_runs = std::max(host.guard_runs, now() + time + random_.up_to(kOneByOne));
}

void HostsSimulation::pause_core(Duration time) {
  core_runs_ = std::max(core_runs_, now() + time + random_.up_to(kOneByOne));
  if (time > kLongestTurn) simulation_.checker().pause(core_runs_);
}

// Whether the call waits until the rendezvous runs.
bool HostsSimulation::waits_for_core(std::size_t index, const std::function<void()>& call) {
  if (now() >= core_runs_ || (is_planted(HostsFault::kCountsPausesOfRendezvous) && index == 0)) return false;
  after(core_runs_ - now() + 1ms, call);
  return true;
}

bool HostsSimulation::waits_for_guard(std::size_t index, const std::function<void()>& call) {
  if (now() >= hosts_[index].guard_runs) return false;
  after(hosts_[index].guard_runs - now() + 1ms, call);
  return true;
}

// The network of the rendezvous is cut from all hosts but its own.
void HostsSimulation::cut_rendezvous(Duration time) {
  ++report_.rendezvous_cuts;
  if (time > spec_.silence_limit + spec_.park_timeout) ++report_.long_rendezvous_cuts;
  for (std::size_t index = is_embedded_ ? 1 : 0; index < hosts_.size(); ++index) {
    hosts_[index].up_cut = std::max(hosts_[index].up_cut, now() + time);
    hosts_[index].down_cut = std::max(hosts_[index].down_cut, now() + time);
  }
  if (is_embedded_) {
    for (std::size_t index = 1; index < hosts_.size(); ++index) note_unreached(index, time);
  }
}

// ---- Planted faults.

// The rendezvous takes a member for one that waits, or a host for one that it hears.
void HostsSimulation::plant_need() {
  for (std::size_t index = 0; index < hosts_.size() && core_ != nullptr; ++index) {
    const std::uint64_t number = hosts_[index].registration;
    if (number == 0) continue;
    const bool is_deaf = hosts_[index].up_cut > now();
    if (is_planted(HostsFault::kCountsItsDeafness) && is_deaf && index == 0)
      on_core([&] { core_->beat(number, now()); });
    const auto job = core_->job();
    const bool has_silent = job && std::any_of(job->members.begin(), job->members.end(),
                                               [](const MemberView& one) { return one.state.word == "silent"; });
    const MemberId id = hosts_[index].members.front();
    if (!is_planted(HostsFault::kEvictsWithoutNeed) || !has_silent || job->members[id].state.word == "silent") continue;
    on_core([&] { core_->report(number, {MemberSent{id, Frozen{job->epoch, {}, {}, "a guess"}}}, now()); });
  }
}

}  // namespace horo::sim
