#include "tests/elastic/service/hosts_simulation.h"

#include <algorithm>
#include <array>
#include <utility>

namespace horo::sim {
namespace {

using namespace std::chrono_literals;

constexpr Duration kTick = 1s;

}  // namespace

HostsReport& HostsReport::operator+=(const HostsReport& other) {
  run += other.run;
  for (const auto count :
       {&HostsReport::restarts,        &HostsReport::crashed_writes,      &HostsReport::outages,
        &HostsReport::silences,        &HostsReport::lost_hosts,          &HostsReport::lost_orders,
        &HostsReport::lost_reports,    &HostsReport::views_again,         &HostsReport::lost_calls,
        &HostsReport::lost_answers,    &HostsReport::late_calls,          &HostsReport::doubled_calls,
        &HostsReport::doubled_orders,  &HostsReport::lone_parks,          &HostsReport::partitions,
        &HostsReport::data_cuts,       &HostsReport::control_cuts,        &HostsReport::whole_cuts,
        &HostsReport::one_way_cuts,    &HostsReport::lasting_cuts,        &HostsReport::restarts_in_cuts,
        &HostsReport::epochs_in_cuts,  &HostsReport::held_calls,          &HostsReport::locked_out,
        &HostsReport::pauses,          &HostsReport::job_pauses,          &HostsReport::core_pauses,
        &HostsReport::rendezvous_cuts, &HostsReport::long_rendezvous_cuts}) {
    this->*count += other.*count;
  }
  return *this;
}

HostsReport simulate_hosts(std::uint64_t seed, HostsFault fault) {
  return HostsSimulation(seed, fault).run();
}

HostsSimulation::HostsSimulation(std::uint64_t seed, HostsFault fault)
    : fault_(fault),
      random_(seed ^ 0x7057'ed),
      simulation_(seed, fault == HostsFault::kNamesNoneOfACut ? Planted::kNamesNoneOfACut : Planted::kNone) {
  simulation_.decide_by(*this);
  simulation_.checker().allow_repeats();
  draw_hosts();
  store_.on_write = [this] { on_decided(); };
  start_core();
  for (std::size_t host = 0; host < hosts_.size(); ++host) register_later(host, random_.up_to(5ms));
  plan_outages();
  plan_partitions();
  after(kTick, [this] { tick(); });
}

void HostsSimulation::draw_hosts() {
  const auto members = static_cast<MemberId>(simulation_.scenario().config.members);
  hosts_.resize(std::min<std::uint64_t>(random_.between(1, 3), members));
  is_embedded_ = random_.one_in(2);
  std::vector<std::uint32_t> hosts;
  for (MemberId id = 0; id < members; ++id) {
    hosts.push_back(static_cast<std::uint32_t>(id * hosts_.size() / members));
    hosts_[hosts.back()].members.push_back(id);
  }
  for (SimHost& host : hosts_) host.job = first_job_view(members);
  simulation_.checker().set_hosts(hosts);
  for (const SimHost& host : hosts_) spec_.ranks_by_host.push_back(static_cast<std::uint32_t>(host.members.size()));
  spec_.min_members = static_cast<std::uint32_t>(simulation_.scenario().config.min_members);
  spec_.silence_limit = simulation_.scenario().config.silence_limit;
  spec_.park_timeout = simulation_.scenario().config.park_timeout;
}

HostsReport HostsSimulation::run() {
  SimReport counted = simulation_.run();
  std::swap(counted, report_.run);
  report_.run.evictions += counted.evictions;
  report_.run.parks += counted.parks;
  report_.run.ends_by_park += counted.ends_by_park;
  report_.run.pauses += counted.pauses;
  report_.run.found_silent += counted.found_silent;
  report_.run.epochs = decided_.membership.view.epoch;
  return report_;
}

void HostsSimulation::take(const HostEvent& event) {
  const MemberId id = std::visit([](const auto& one) { return one.id; }, event);
  const std::size_t host = host_of(id);
  if (waits_for_guard(host, [this, event] { take(event); })) return;
  std::visit([&](const auto& one) { known_[id].note(one); }, event);
  if (hosts_[host].is_dead) return;
  update_park(host);
  if (hosts_[host].is_away) return;  // in its next past
  hosts_[host].waiting.push_back(event);
  report(host);
}

void HostsSimulation::on_time(std::uint64_t number) {
  const auto call = std::move(pending_.at(number));
  pending_.erase(number);
  call();
}

void HostsSimulation::after(Duration delay, std::function<void()> call) {
  pending_[++serial_] = std::move(call);
  simulation_.later(serial_, delay);
}

std::size_t HostsSimulation::host_of(MemberId id) const {
  std::size_t host = 0;
  while (id > hosts_[host].members.back()) ++host;
  return host;
}

bool HostsSimulation::have_all_ended() {
  const auto members = static_cast<MemberId>(simulation_.scenario().config.members);
  for (MemberId id = 0; id < members; ++id) {
    if (!simulation_.has_ended(id)) return false;
  }
  return true;
}

void HostsSimulation::plan_outages() {
  const Duration within = random_.one_in(2) ? Duration(100ms) : Duration(2s);
  latency_ = random_.one_in(3) ? Duration(10ms) : Duration(500us);
  loses_one_in_ = random_.one_in(3) ? random_.between(4, 40) : 0;
  for (std::uint64_t left = random_.below(4); left > 0; --left) {
    after(random_.up_to(within), [this] { crash(); });
  }
  if (random_.one_in(2)) fail_store(random_.between(2, 20));
  draw_crash_of_order();
  for (std::uint64_t left = random_.below(4); left > 0; --left) {
    const std::size_t host = random_.below(hosts_.size());
    const Duration pause = random_.one_in(10) ? Duration(11s + random_.up_to(10s))
                                              : random_.up_to(random_.one_in(2) ? Duration(30ms) : Duration(2s));
    after(random_.up_to(within), [this, host, pause] { lose_agent(host, pause); });
  }
  if (random_.one_in(8)) {
    const std::size_t host = random_.below(hosts_.size());
    after(random_.up_to(within), [this, host] { lose_host(host); });
  }
}

void HostsSimulation::fail_store(std::uint64_t next_write) {
  constexpr std::array kFaults = {StoreFault::kFailsBefore, StoreFault::kFailsAfter, StoreFault::kIsLost};
  store_.fail_at(next_write, kFaults[random_.below(kFaults.size())]);
}

void HostsSimulation::tick() {
  if (fault_ != HostsFault::kNone) plant_need();
  set_timer();
  if (!have_all_ended()) after(kTick, [this] { tick(); });
}

}  // namespace horo::sim
