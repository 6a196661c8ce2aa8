// A call is a request and an answer on the connection of an agent. While the network is cut, what was sent waits, as in
// TCP; a new connection needs both directions. An agent that gives a call up cannot know whether it was or will be
// served.
#include <algorithm>
#include <array>

#include "tests/elastic/service/hosts_simulation.h"

namespace horo::sim {
namespace {

using namespace std::chrono_literals;

constexpr Duration kLastingCut = 10min;  // longer than all that a part of the job waits for
constexpr Duration kLeastPeriod = 1s;
constexpr Duration kLongUnreached = 5s;  // a member may have no time to answer

}  // namespace

// ---- Calls.

// Messages of one direction of a connection keep their order.
TimePoint HostsSimulation::arrival(TimePoint& last, TimePoint cut_until) {
  if (cut_until > now()) ++report_.held_calls;
  last = std::max(last, std::max(now(), cut_until) + random_.up_to(latency_));
  return last;
}

void HostsSimulation::call(AgentCall one) {
  SimHost& host = hosts_[one.host];
  const auto shared = std::make_shared<AgentCall>(std::move(one));
  const std::uint64_t agent = host.agent;
  const bool is_reset = loses_one_in_ > 0 && random_.one_in(2 * loses_one_in_);
  if (shared->connects) shared->begins = std::max({now(), host.up_cut, host.down_cut});
  const TimePoint at = arrival(host.up, std::max(host.up_cut, shared->begins));
  if (is_reset) {
    ++report_.lost_calls;
    return after(random_.up_to(latency_), [this, shared, agent] { give_up(shared, agent); });
  }
  after(at - now(), [this, shared, agent] { serve(shared, agent); });
  after(shared->limit, [this, shared, agent] { give_up(shared, agent); });
}

// The call has no answer.
void HostsSimulation::give_up(const std::shared_ptr<AgentCall>& one, std::uint64_t agent) {
  if (hosts_[one->host].agent != agent || one->answered == nullptr) return;
  const bool goes_on = is_planted(HostsFault::kIgnoresALostAnswer) && !one->connects;
  goes_on ? std::exchange(one->answered, nullptr)(Served::kDone) : lose_contact(one->host);
}

void HostsSimulation::serve(const std::shared_ptr<AgentCall>& one, std::uint64_t agent) {
  SimHost& host = hosts_[one->host];
  if (waits_for_core(one->host, [this, one, agent] { serve(one, agent); })) return;
  if (host.agent != agent) {
    const bool has_begun = one->begins <= host.given_up;
    if (!has_begun || random_.one_in(2)) return;
    ++report_.late_calls;
  }
  serving_ = one->host;
  const Served served = one->serve();
  serving_.reset();
  if (loses_one_in_ > 0 && random_.one_in(2 * loses_one_in_) && host.agent == agent) {
    ++report_.lost_answers;
    return after(random_.up_to(latency_), [this, one, agent] { give_up(one, agent); });
  }
  TimePoint last{};
  after(arrival(last, host.down_cut) - now(), [this, one, agent, served] {
    if (hosts_[one->host].agent == agent && one->answered != nullptr) std::exchange(one->answered, nullptr)(served);
  });
}

// ---- Partitions.

void HostsSimulation::plan_partitions() {
  if (random_.one_in(4)) {
    const std::array<Duration, 4> kLasts = {5s, 20s, 75s, 150s};
    const Duration lasts = random_.up_to(kLasts[random_.below(kLasts.size())]);
    after(random_.up_to(2s), [this, lasts] { cut_rendezvous(lasts); });
  }
  if (random_.one_in(3)) return;
  const std::array<Duration, 3> kWithin = {20ms, 200ms, 2s};
  const Duration within = kWithin[random_.below(kWithin.size())];
  for (std::uint64_t left = random_.between(1, 3); left > 0; --left) {
    const Partition one = draw_partition();
    after(random_.up_to(within), [this, one] { begin_partition(one); });
  }
}

Partition HostsSimulation::draw_partition() {
  const std::array<Duration, 5> kLasts = {20ms, 500ms, 5s, 10s, 30s};
  Partition one;
  one.host = random_.below(hosts_.size());
  const std::uint64_t what = hosts_.size() > 1 ? random_.below(3) : 0;
  one.has_control = what != 1;
  one.has_data = what != 0;
  const std::uint64_t direction = random_.below(4);
  one.is_out = direction != 1;
  one.is_in = direction != 2;
  const std::size_t other = random_.below(hosts_.size());
  if (what == 1 && other != one.host) one.other = other;
  one.is_lasting = random_.one_in(6);
  one.lasts = one.is_lasting ? kLastingCut : random_.up_to(kLasts[random_.below(kLasts.size())]);
  return one;
}

void HostsSimulation::begin_partition(const Partition& partition) {
  const auto is_unknown = [](const SimHost& host) { return !host.heard; };
  if (have_all_ended() || hosts_[partition.host].is_dead) return;
  if (partition.is_lasting && std::any_of(hosts_.begin(), hosts_.end(), is_unknown)) return;
  const TimePoint until = now() + partition.lasts;
  count_partition(partition);
  open_.push_back(partition);
  if (partition.has_control) cut_agents(partition, until);
  if (partition.has_data) cut_members(partition, until);
  after(partition.lasts, [this, partition] { end_partition(partition); });
}

void HostsSimulation::count_partition(const Partition& partition) {
  ++report_.partitions;
  if (!partition.has_control) ++report_.data_cuts;
  if (!partition.has_data) ++report_.control_cuts;
  if (partition.has_data && partition.has_control) ++report_.whole_cuts;
  if (!partition.is_in || !partition.is_out) ++report_.one_way_cuts;
  if (partition.is_lasting) ++report_.lasting_cuts;
}

// The way of host 0 to a rendezvous of its own cannot be cut; that of the others to it can.
void HostsSimulation::cut_agents(const Partition& partition, TimePoint until) {
  const bool is_of_all = is_embedded_ && partition.host == 0;
  for (std::size_t index = 0; index < hosts_.size(); ++index) {
    if (is_of_all ? index == 0 : index != partition.host) continue;
    SimHost& host = hosts_[index];
    const bool is_up = is_of_all ? partition.is_in : partition.is_out;
    const bool is_down = is_of_all ? partition.is_out : partition.is_in;
    if (is_up) host.up_cut = std::max(host.up_cut, until);
    if (is_down) host.down_cut = std::max(host.down_cut, until);
    note_unreached(index, partition.lasts);
  }
}

void HostsSimulation::note_unreached(std::size_t index, Duration time) {
  hosts_[index].unreached += time;
  if (hosts_[index].unreached <= kLongUnreached) return;
  for (const MemberId id : hosts_[index].members) simulation_.checker().allow_eviction(id);
}

void HostsSimulation::cut_members(const Partition& partition, TimePoint until) {
  for (std::size_t other = 0; other < hosts_.size(); ++other) {
    if (other == partition.host || (partition.other && other != *partition.other)) continue;
    for (const MemberId mine : hosts_[partition.host].members) {
      for (const MemberId theirs : hosts_[other].members) {
        if (partition.is_out) simulation_.cut(mine, theirs, until);
        if (partition.is_in) simulation_.cut(theirs, mine, until);
      }
    }
  }
  const std::array<Duration, 3> kPeriods = {100ms, 2s, 8s};
  look_at_links(partition, kPeriods[random_.below(kPeriods.size())], until);
}

// Members give up a link after a while, some before the others.
void HostsSimulation::look_at_links(const Partition& partition, Duration period, TimePoint until) {
  after(random_.up_to(period), [this, partition, period, until] {
    if (now() >= until || have_all_ended()) return;
    for (MemberId id = 0; id < spec_.members(); ++id) {
      if (random_.one_in(2)) simulation_.miss_peer(id);
    }
    look_at_links(partition, std::max(period, kLeastPeriod), until);
  });
}

// After a cut that has lasted so long, no member waits: it has gone on to its end, or has been ended with its job.
void HostsSimulation::end_partition(const Partition& partition) {
  open_.erase(std::find_if(open_.begin(), open_.end(), [&](const Partition& one) {
    return one.host == partition.host && one.lasts == partition.lasts;
  }));
  for (MemberId id = 0; id < spec_.members() && partition.is_lasting; ++id) {
    if (simulation_.has_ended(id)) continue;
    simulation_.checker().violate("member " + std::to_string(id) + " waits in a network that is cut");
  }
}

}  // namespace horo::sim
