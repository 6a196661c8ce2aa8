// Agents as in elastic/service/agent.cc.
#include <algorithm>

#include "tests/elastic/service/hosts_simulation.h"

namespace horo::sim {
namespace {

using namespace std::chrono_literals;

constexpr Duration kRegisterLimit = 5s;
constexpr std::uint64_t kDoublesOneIn = 8;
constexpr int kBeatsInLease = 4;

}  // namespace

// The agent of the host ends or has lost its registration: what is on its way to the guard is lost.
void HostsSimulation::lose_agent(std::size_t index, Duration pause, bool is_outage) {
  SimHost& host = hosts_[index];
  if (is_outage) ++report_.outages;
  if (is_planted(HostsFault::kTakesAStreamForAHost) && host.registration != 0) tell_core_of_ends(index);
  note_unreached(index, pause);
  ++host.agent;
  host.is_away = true;
  host.registration = 0;
  host.is_reporting = false;
  report_.lost_reports += host.waiting.size();
  host.waiting.clear();
  host.is_registering = false;
  host.up = host.down = TimePoint{};  // of a new connection
  host.given_up = now();
  register_later(index, pause);
}

// The rendezvous does not answer.
void HostsSimulation::lose_contact(std::size_t index) {
  hosts_[index].has_contact = false;
  lose_agent(index, random_.up_to(100ms), false);
  update_park(index);
}

void HostsSimulation::register_later(std::size_t index, Duration pause) {
  SimHost& host = hosts_[index];
  if (host.is_dead || host.is_locked_out || std::exchange(host.is_registering, true)) return;
  after(pause, [this, index, agent = host.agent] {
    if (hosts_[index].agent == agent) ask_past(index);
  });
}

void HostsSimulation::ask_past(std::size_t index) {
  SimHost& host = hosts_[index];
  host.is_registering = false;
  host.is_away = false;
  host.registration = 0;
  host.is_reporting = false;
  host.waiting.clear();
  ++host.agent;
  HostHello hello{spec_, static_cast<std::uint32_t>(index), kFirstIncarnation + index, {}};
  for (const MemberId id : host.members) hello.past.members.push_back(known_[id].past(id, fault_));
  const auto registration = std::make_shared<Registration>();
  const auto serve = [this, index, hello = std::move(hello), registration] {
    const Served served = on_core([&] { *registration = register_in_core(hello); });
    if (served == Served::kDone) note_heard(index);
    set_timer();
    return served;
  };
  call({index, kRegisterLimit, true, serve, [this, index, registration](Served served) {
          if (served == Served::kEvicted) return lock_out(index);
          if (served != Served::kDone) return lose_contact(index);
          hosts_[index].registration = registration->number;
          hosts_[index].has_contact = true;
          update_park(index);
          beat_later(index);
          report(index);
          pump(index);
        }});
}

// Calls follow one another.
void HostsSimulation::report(std::size_t index) {
  SimHost& host = hosts_[index];
  if (host.registration == 0 || host.waiting.empty() || host.is_reporting) return;
  std::vector<HostEvent> events(host.waiting.begin(), host.waiting.end());
  host.waiting.clear();
  host.is_reporting = true;
  const std::size_t count = events.size();
  const auto serve = [this, index, number = host.registration, events = std::move(events)] {
    return serve_report(index, number, events);
  };
  call({index, spec_.silence_limit / 2, false, serve, [this, index, count](Served served) {
          hosts_[index].is_reporting = false;
          if (served == Served::kDone) return report(index);
          if (served == Served::kEvicted) return lock_out(index);
          report_.lost_reports += count;
          served == Served::kGone ? lose_contact(index) : lose_agent(index, random_.up_to(100ms), false);
        }});
}

Served HostsSimulation::serve_report(std::size_t index, std::uint64_t number, const std::vector<HostEvent>& events) {
  const Served served = on_core([&] { core_->report(number, events, now()); });
  if (served == Served::kDone) note_heard(index);
  if (served == Served::kDone && loses_one_in_ > 0 && random_.one_in(kDoublesOneIn)) {
    ++report_.doubled_calls;
    on_core([&] { core_->report(number, events, now()); });
  }
  set_timer();
  return served;
}

void HostsSimulation::beat_later(std::size_t index) {
  const std::uint64_t number = hosts_[index].registration, agent = hosts_[index].agent;
  after(spec_.silence_limit / kBeatsInLease, [this, index, number, agent] {
    if (hosts_[index].agent != agent || have_all_ended()) return;
    const auto serve = [this, index, number] {
      const Served served = on_core([&] { core_->beat(number, now()); });
      if (served == Served::kDone) note_heard(index);
      return served;
    };
    call({index, spec_.silence_limit / 2, false, serve, [this, index](Served served) {
            if (served == Served::kDone) return beat_later(index);
            if (served == Served::kEvicted) return lock_out(index);
            served == Served::kGone ? lose_contact(index) : lose_agent(index, random_.up_to(20ms), false);
          }});
  });
}

void HostsSimulation::pump(std::size_t index) {
  const std::uint64_t number = hosts_[index].registration;
  if (number == 0 || waits_for_core(index, [this, index] { pump(index); })) return;
  while (true) {
    std::optional<HostOrder> order;
    const Served served = on_core([&] { order = core_->take_order(number); });
    if (served == Served::kEvicted) {
      const TimePoint at = arrival(hosts_[index].down, hosts_[index].down_cut);
      after(at - now(), [this, index, agent = hosts_[index].agent] {
        if (hosts_[index].agent == agent) lock_out(index);
      });
    }
    if (served != Served::kDone || !order) return;
    if (std::holds_alternative<SendToMembers>(*order) && orders_left_ > 0 && --orders_left_ == 0) {
      after(random_.up_to(latency_), [this] { crash(); });
    }
    send_order(index, *order);
  }
}

void HostsSimulation::send_order(std::size_t index, const HostOrder& order) {
  SimHost& host = hosts_[index];
  const TimePoint at = arrival(host.down, host.down_cut);
  after(at - now(), [this, index, agent = host.agent, order] { deliver(index, agent, order); });
}

void HostsSimulation::deliver(std::size_t index, std::uint64_t agent, const HostOrder& order) {
  if (hosts_[index].is_dead) return;
  if (waits_for_guard(index, [this, index, agent, order] { deliver(index, agent, order); })) return;
  if (hosts_[index].agent != agent) ++report_.lost_orders;
  if (hosts_[index].agent != agent && !is_planted(HostsFault::kTakesLateOrders)) return;
  const bool is_doubled = loses_one_in_ > 0 && random_.one_in(kDoublesOneIn);
  if (is_doubled) ++report_.doubled_orders;
  for (int times = is_doubled ? 2 : 1; times > 0; --times)
    std::visit([&](const auto& one) { carry_out(index, one); }, order);
}

}  // namespace horo::sim
