#include "tests/elastic/service/rendezvous_simulator.h"

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <numeric>

#include "elastic/service/rendezvous_core.h"
#include "tests/elastic/service/memory_store.h"
#include "tests/elastic/simulation.h"

namespace horo::sim {
namespace {

using namespace std::chrono_literals;

constexpr Duration kTick = 1s;
constexpr std::uint64_t kIncarnation = 0xabc0;

// As in tools/horo/run/remote_decision.cc.
struct Known {
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
  void note(const MemberSent& event) {
    if (const auto* one = std::get_if<Installed>(&event.message)) {
      installed = *one;
      frozen.reset();
    }
    if (const auto* one = std::get_if<Frozen>(&event.message)) frozen = *one;
    if (const auto* one = std::get_if<Leave>(&event.message)) left = *one;
  }
  MemberPast past(MemberId id) const {
    MemberPast past{id, viewed, {}};
    if (installed) past.events.emplace_back(MemberSent{id, *installed});
    if (frozen) past.events.emplace_back(MemberSent{id, *frozen});
    if (left) past.events.emplace_back(MemberSent{id, *left});
    if (is_stopped) past.events.emplace_back(MemberStopped{id});
    if (ended) past.events.emplace_back(*ended);
    return past;
  }
};

struct SimHost {
  std::vector<MemberId> members;
  std::uint64_t agent = 0;         // rises with each registration that the agent begins, and with its end
  bool is_away = true;             // no agent has asked for the past
  bool is_registering = false;     // one is to begin
  std::uint64_t registration = 0;  // that the agent has; 0: none
  bool is_ended = false;           // EndJob has come
  TimePoint up{}, down{};          // the last message arrives then
  std::deque<HostEvent> waiting;   // until the agent is registered
};

class HostsSimulation final : public RemoteDecision {
 public:
  HostsSimulation(std::uint64_t seed, Forgets forgets)
      : forgets_(forgets), random_(seed ^ 0x7057'ed), simulation_(seed, Planted::kNone) {
    simulation_.decide_by(*this);
    simulation_.checker().allow_repeats();
    const auto members = static_cast<MemberId>(simulation_.scenario().config.members);
    hosts_.resize(std::min<std::uint64_t>(random_.between(1, 3), members));
    std::vector<std::uint32_t> hosts;
    for (MemberId id = 0; id < members; ++id) {
      hosts.push_back(static_cast<std::uint32_t>(id * hosts_.size() / members));
      hosts_[hosts.back()].members.push_back(id);
    }
    simulation_.checker().set_hosts(hosts);
    for (const SimHost& host : hosts_) spec_.ranks_by_host.push_back(static_cast<std::uint32_t>(host.members.size()));
    spec_.min_members = static_cast<std::uint32_t>(simulation_.scenario().config.min_members);
    spec_.silence_limit = simulation_.scenario().config.silence_limit;
    spec_.park_timeout = simulation_.scenario().config.park_timeout;
    store_.on_write = [this] { on_decided(); };
    start_core();
    for (std::size_t host = 0; host < hosts_.size(); ++host) register_later(host, random_.up_to(5ms));
    plan_outages();
    after(kTick, [this] { tick(); });
  }

  HostsReport run() {
    SimReport counted = simulation_.run();
    std::swap(counted, report_.run);
    report_.run.evictions += counted.evictions;
    report_.run.parks += counted.parks;
    report_.run.ends_by_park += counted.ends_by_park;
    report_.run.epochs = decided_.membership.view.epoch;
    return report_;
  }

  void take(const HostEvent& event) override {
    const MemberId id = std::visit([](const auto& one) { return one.id; }, event);
    std::visit([&](const auto& one) { known_[id].note(one); }, event);
    const std::size_t host = host_of(id);
    if (hosts_[host].is_away) return;  // in its next past
    hosts_[host].waiting.push_back(event);
    report(host);
  }

  void on_time(std::uint64_t number) override {
    const auto call = std::move(pending_.at(number));
    pending_.erase(number);
    call();
  }

 private:
  void after(Duration delay, std::function<void()> call) {
    pending_[++serial_] = std::move(call);
    simulation_.later(serial_, delay);
  }
  // Messages of one direction keep their order.
  void in_order(TimePoint& last, std::function<void()> call) {
    last = std::max(last, simulation_.now() + random_.up_to(latency_));
    after(last - simulation_.now(), std::move(call));
  }
  std::size_t host_of(MemberId id) const {
    std::size_t host = 0;
    while (id > hosts_[host].members.back()) ++host;
    return host;
  }

  void plan_outages() {
    const Duration within = random_.one_in(2) ? Duration(100ms) : Duration(2s);
    latency_ = random_.one_in(3) ? Duration(10ms) : Duration(500us);
    for (std::uint64_t left = random_.below(4); left > 0; --left) {
      after(random_.up_to(within), [this] { crash(); });
    }
    if (random_.one_in(2)) store_.fail_at(random_.between(2, 20), draw_fault());
    draw_crash_of_order();
    for (std::uint64_t left = random_.below(4); left > 0; --left) {
      const std::size_t host = random_.below(hosts_.size());
      const Duration pause = random_.one_in(10) ? Duration(11s + random_.up_to(10s))
                                                : random_.up_to(random_.one_in(2) ? Duration(30ms) : Duration(2s));
      after(random_.up_to(within), [this, host, pause] { lose_agent(host, pause); });
    }
  }
  StoreFault draw_fault() {
    constexpr std::array kFaults = {StoreFault::kFailsBefore, StoreFault::kFailsAfter, StoreFault::kIsLost};
    return kFaults[random_.below(kFaults.size())];
  }

  // The rendezvous ends when it has given out so many orders of members.
  void draw_crash_of_order() { orders_left_ = report_.restarts < 6 && random_.one_in(2) ? random_.between(1, 12) : 0; }

  // ---- The rendezvous.

  void start_core() {
    core_ = std::make_unique<RendezvousCore>(
        store_, [this](std::uint32_t host) { after(1ns, [this, host] { pump(host); }); }, simulation_.now());
  }
  void crash() {
    if (core_ == nullptr) return;
    core_.reset();
    ++report_.restarts;
    after(random_.up_to(random_.one_in(2) ? Duration(5ms) : Duration(1s)), [this] {
      if (store_.record.revision > 0) forget();
      try {
        start_core();
      } catch (const StoreLost&) {
        core_lost();
      }
    });
    if (report_.restarts < 6 && random_.one_in(2)) store_.fail_at(random_.between(1, 12), draw_fault());
    draw_crash_of_order();
    for (std::size_t host = 0; host < hosts_.size(); ++host)
      register_later(host, random_.up_to(random_.one_in(2) ? Duration(20ms) : Duration(1s)));
  }
  void core_lost() {
    ++report_.crashed_writes;
    core_ = core_ ? std::move(core_)
                  : std::make_unique<RendezvousCore>(
                        spare_, [](std::uint32_t) {}, TimePoint{});
    crash();
  }
  void forget() {
    JobRecord record = decode_job_record(store_.record.bytes);
    if (forgets_ == Forgets::kSettle) record.membership.settled.reset();
    if (forgets_ == Forgets::kView) record.membership.view.progress.clear();
    for (auto& member : record.membership.members) {
      if (forgets_ != Forgets::kDeparture || member.presence != MembershipSnapshot::Presence::kEvicted) continue;
      member.presence = MembershipSnapshot::Presence::kHere;
    }
    store_.record.bytes = encode(record);
  }
  // A failure of the store ends the rendezvous; nothing: it is away, or does not know the host.
  template <class Call>
  bool on_core(const Call& call) {
    if (core_ == nullptr) return false;
    try {
      call();
      return true;
    } catch (const NotRegistered&) {
      return false;
    } catch (const StoreLost&) {
      core_lost();
      return false;
    } catch (const HostRefused& error) {
      simulation_.checker().violate(std::string("a host is refused: ") + error.what());
      return false;
    }
  }
  void pass_time() {
    on_core([&] { core_->pass_time(simulation_.now()); });
    set_timer();
  }
  void set_timer() {
    if (core_ == nullptr) return;
    const auto next = core_->next_deadline();
    if (!next || timer_ == next) return;
    timer_ = next;
    after(std::max(*next - simulation_.now(), Duration(1ns)), [this, due = *next] {
      if (timer_ == due) timer_.reset();
      pass_time();
    });
  }
  // What is stored is decided.
  void on_decided() {
    JobRecord now = decode_job_record(store_.record.bytes);
    RunChecker& checker = simulation_.checker();
    const auto& members = now.membership.members;
    MemberSet here = 0;
    for (MemberId id = 0; id < members.size(); ++id) {
      const bool is_evicted = members[id].presence == MembershipSnapshot::Presence::kEvicted;
      const bool was =
          id < decided_.membership.members.size() && decided_.membership.members[id].presence == members[id].presence;
      if (is_evicted && !was) {
        ++report_.run.evictions;
        checker.evict(id);
      }
      if (!is_evicted && simulation_.is_here(id)) here |= only(id);
    }
    if (now.membership.view.epoch < decided_.membership.view.epoch) checker.violate("the epoch falls");
    if (now.term < decided_.term) checker.violate("the term falls");
    const bool is_new_end = now.membership.end && !decided_.membership.end;
    if (is_new_end && checker.is_enough(here)) checker.violate("the job ends although it has enough members");
    decided_ = std::move(now);
  }
  void tick() {
    for (std::size_t host = 0; host < hosts_.size(); ++host) {
      const std::uint64_t number = hosts_[host].registration;
      if (number == 0) continue;
      if (!on_core([&] { core_->beat(number, simulation_.now()); })) lose_agent(host, random_.up_to(20ms), false);
    }
    set_timer();
    const bool all_ended =
        std::none_of(known_.begin(), known_.end(), [](const auto& one) { return !one.second.ended; });
    if (!all_ended || known_.size() < static_cast<std::size_t>(simulation_.scenario().config.members))
      after(kTick, [this] { tick(); });
  }

  // ---- Agents.

  // The agent of the host ends or has lost its registration: what is on its way to the guard is lost.
  void lose_agent(std::size_t index, Duration pause, bool is_outage = true) {
    SimHost& host = hosts_[index];
    if (is_outage) ++report_.outages;
    if (pause > spec_.silence_limit) {
      ++report_.silences;
      for (const MemberId id : host.members) simulation_.checker().allow_eviction(id);
    }
    ++host.agent;
    host.is_away = true;
    host.registration = 0;
    report_.lost_reports += host.waiting.size();
    host.waiting.clear();
    host.is_registering = false;
    register_later(index, pause);
  }
  void register_later(std::size_t index, Duration pause) {
    SimHost& host = hosts_[index];
    if (std::exchange(host.is_registering, true)) return;
    after(pause, [this, index, agent = host.agent] {
      if (hosts_[index].agent == agent) ask_past(index);
    });
  }
  void ask_past(std::size_t index) {
    SimHost& host = hosts_[index];
    host.is_registering = host.is_away = false;
    host.registration = 0;
    host.waiting.clear();
    const std::uint64_t agent = ++host.agent;
    HostHello hello{spec_, static_cast<std::uint32_t>(index), kIncarnation + index, {}};
    for (const MemberId id : host.members) hello.past.members.push_back(known_[id].past(id));
    in_order(host.up, [this, index, agent, hello = std::move(hello)] {
      Registration registration;
      const bool is_done = on_core([&] { registration = core_->register_host(hello, simulation_.now()); });
      SimHost& now = hosts_[index];
      set_timer();
      if (now.agent != agent) return;
      if (!is_done) return lose_agent(index, random_.up_to(100ms), false);
      now.registration = registration.number;
      report(index);
      pump(index);
    });
  }
  void report(std::size_t index) {
    SimHost& host = hosts_[index];
    if (host.registration == 0 || host.waiting.empty()) return;
    std::vector<HostEvent> events(host.waiting.begin(), host.waiting.end());
    host.waiting.clear();
    in_order(host.up, [this, index, number = host.registration, agent = host.agent, events = std::move(events)] {
      const bool is_done = on_core([&] { core_->report(number, events, simulation_.now()); });
      set_timer();
      if (is_done) return;
      ++report_.lost_reports;
      if (hosts_[index].agent == agent) lose_agent(index, random_.up_to(100ms), false);
    });
  }
  void pump(std::size_t index) {
    const std::uint64_t number = hosts_[index].registration;
    if (number == 0) return;
    while (true) {
      std::optional<HostOrder> order;
      if (!on_core([&] { order = core_->take_order(number); }) || !order) return;
      if (std::holds_alternative<SendToMember>(*order) && orders_left_ > 0 && --orders_left_ == 0) {
        after(random_.up_to(latency_), [this] { crash(); });
      }
      in_order(hosts_[index].down, [this, index, agent = hosts_[index].agent, one = *order] {
        if (hosts_[index].agent != agent) ++report_.lost_orders;
        if (hosts_[index].agent != agent && forgets_ != Forgets::kAgent) return;
        std::visit([&](const auto& order_now) { carry_out(index, order_now); }, one);
      });
    }
  }

  // ---- The guard takes an order.

  void carry_out(std::size_t, const SendToMember& order) {
    Known& known = known_[order.id];
    if (const auto* view = std::get_if<View>(&order.message)) {
      if (secrets_.emplace(view->epoch, view->secret).first->second != view->secret) ++report_.views_again;
      if (view->epoch <= known.viewed) return;
      known.viewed = view->epoch;
    }
    if (const auto* freeze = std::get_if<Freeze>(&order.message)) {
      if (known.asked && freeze->epoch <= *known.asked) return;
      known.asked = freeze->epoch;
    }
    if (!known.ended) simulation_.pass_on(order.id, order.message);
  }
  void carry_out(std::size_t, const StoryTold&) {}
  void carry_out(std::size_t index, const EndJob&) {
    ++report_.run.ends_by_park;
    hosts_[index].is_ended = true;
    for (const MemberId id : hosts_[index].members) simulation_.end_member(id);
  }
  // When the job is over, those that are stopped are killed, and evicted ones have 5 s.
  void carry_out(std::size_t index, const JobView& view) {
    if (view.is_parked) ++report_.run.parks;
    if (std::any_of(view.members.begin(), view.members.end(), [](const auto& one) { return !one.is_out; })) return;
    for (const MemberId id : hosts_[index].members) {
      if (simulation_.is_stopped(id)) simulation_.end_member(id);
      after(5s, [this, id] { simulation_.end_member(id); });
    }
  }

  const Forgets forgets_;
  SplitMix random_;
  Simulation simulation_;
  JobSpec spec_;
  MemoryStore store_, spare_;
  std::unique_ptr<RendezvousCore> core_;  // null: it is away
  JobRecord decided_;
  std::vector<SimHost> hosts_;
  std::map<MemberId, Known> known_;
  std::map<std::uint32_t, JobKey> secrets_;  // by epoch: the first
  std::map<std::uint64_t, std::function<void()>> pending_;
  std::uint64_t serial_ = 0;
  Duration latency_ = 1ms;
  std::optional<TimePoint> timer_;
  std::uint64_t orders_left_ = 0;
  HostsReport report_;
};

}  // namespace

HostsReport& HostsReport::operator+=(const HostsReport& other) {
  run += other.run;
  for (const auto count :
       {&HostsReport::restarts, &HostsReport::crashed_writes, &HostsReport::outages, &HostsReport::silences,
        &HostsReport::lost_orders, &HostsReport::lost_reports, &HostsReport::views_again}) {
    this->*count += other.*count;
  }
  return *this;
}

HostsReport simulate_hosts(std::uint64_t seed, Forgets forgets) {
  return HostsSimulation(seed, forgets).run();
}

}  // namespace horo::sim
