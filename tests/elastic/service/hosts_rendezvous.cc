#include <algorithm>
#include <utility>

#include "tests/elastic/service/hosts_simulation.h"

namespace horo::sim {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t kMostRestarts = 6;

}  // namespace

// The rendezvous ends when it has given out so many orders of members.
void HostsSimulation::draw_crash_of_order() {
  orders_left_ = report_.restarts < kMostRestarts && random_.one_in(2) ? random_.between(1, 12) : 0;
}

void HostsSimulation::start_core() {
  core_started_ = now();
  const std::uint64_t stored_term = decided_.term;
  core_lag_ = is_planted(HostsFault::kEvictsAtOnce) && stored_term > 0 ? Duration(12s) : Duration{};
  core_ = std::make_unique<RendezvousCore>(
      store_, [this](std::uint32_t host) { after(1ns, [this, host] { pump(host); }); }, now() - core_lag_);
  if (core_->term() <= stored_term) simulation_.checker().violate("the term does not rise");
}

// A planted fault: the leases of the other hosts end when the first one registers after a start.
Registration HostsSimulation::register_in_core(const HostHello& hello) {
  const TimePoint begun = now() - std::exchange(core_lag_, Duration{});
  Registration registration = core_->register_host(hello, begun);
  for (TimePoint at = begun; at < now(); at += 500ms) {
    core_->beat(registration.number, at);
    core_->pass_time(at);
  }
  return registration;
}

void HostsSimulation::crash() {
  if (core_ == nullptr || now() < core_runs_) return;
  core_.reset();
  ++report_.restarts;
  if (!open_.empty()) ++report_.restarts_in_cuts;
  if (is_embedded_ && hosts_[0].is_dead) return;
  const Duration pause = random_.one_in(20) ? Duration(10s + random_.up_to(60s))
                                            : random_.up_to(random_.one_in(2) ? Duration(5ms) : Duration(1s));
  after(pause, [this] { restart(); });
  if (report_.restarts < kMostRestarts && random_.one_in(2)) fail_store(random_.between(1, 12));
  draw_crash_of_order();
  for (std::size_t host = 0; host < hosts_.size(); ++host)
    register_later(host, random_.up_to(random_.one_in(2) ? Duration(20ms) : Duration(1s)));
}

void HostsSimulation::restart() {
  if (is_embedded_ && hosts_[0].is_dead) return;
  if (now() < core_runs_) return after(core_runs_ - now(), [this] { restart(); });
  if (store_.record.revision > 0) forget();
  try {
    start_core();
  } catch (const StoreLost&) {
    core_lost();
  }
  set_timer();
}

void HostsSimulation::core_lost() {
  ++report_.crashed_writes;
  core_ = core_ ? std::move(core_)
                : std::make_unique<RendezvousCore>(
                      spare_, [](std::uint32_t) {}, TimePoint{});
  crash();
}

void HostsSimulation::forget() {
  const bool is_late = is_planted(HostsFault::kTellsBeforeItStores) && record_before_.revision > 0;
  JobRecord record = decode_job_record(is_late ? record_before_.bytes : store_.record.bytes);
  if (is_late) record.term = decided_.term;
  if (is_planted(HostsFault::kForgetsSettle)) record.membership.settled.reset();
  if (is_planted(HostsFault::kForgetsView)) record.membership.view.progress.clear();
  if (is_planted(HostsFault::kRepeatsTerm)) --record.term;
  if (is_planted(HostsFault::kRepeatsEpoch) && record.membership.view.epoch > 0) --record.membership.view.epoch;
  if (is_planted(HostsFault::kForgetsDeparture)) record.evicted.clear();
  for (auto& member : record.membership.members) {
    if (!is_planted(HostsFault::kForgetsDeparture)) continue;
    if (member.presence == MembershipSnapshot::Presence::kEvicted)
      member.presence = MembershipSnapshot::Presence::kHere;
  }
  store_.record.bytes = encode(record);
}

// A failure of the store ends the rendezvous.
Served HostsSimulation::on_core(const std::function<void()>& call) {
  if (core_ == nullptr) return Served::kGone;
  try {
    call();
    return Served::kDone;
  } catch (const NotRegistered&) {
    return Served::kNotRegistered;
  } catch (const HostEvicted&) {
    return Served::kEvicted;
  } catch (const StoreLost&) {
    core_lost();
    return Served::kGone;
  } catch (const HostRefused& error) {
    simulation_.checker().violate(std::string("a host is refused: ") + error.what());
    return Served::kGone;
  }
}

void HostsSimulation::pass_time() {
  const bool counts = is_planted(HostsFault::kCountsPausesOfRendezvous);
  if (now() < core_runs_ && !counts)
    return after(core_runs_ - now(), [this] { pass_time(); });  // before calls are read
  on_core([&] { core_->pass_time(now()); });
  set_timer();
}

void HostsSimulation::set_timer() {
  if (core_ == nullptr || core_lag_ > Duration{}) return;
  const auto next = core_->next_deadline();
  if (!next || timer_ == next) return;
  timer_ = next;
  after(std::max(*next - now(), Duration(1ns)), [this, due = *next] {
    if (timer_ == due) timer_.reset();
    pass_time();
  });
}

// What is stored is decided.
void HostsSimulation::on_decided() {
  record_before_ = std::exchange(last_record_, store_.record);
  JobRecord next = decode_job_record(store_.record.bytes);
  RunChecker& checker = simulation_.checker();
  const auto& members = next.membership.members;
  const auto& before = decided_.membership.members;
  MemberSet here = 0;
  for (MemberId id = 0; id < members.size(); ++id) {
    const bool is_evicted = members[id].presence == MembershipSnapshot::Presence::kEvicted;
    const bool was = id < before.size() && before[id].presence == members[id].presence;
    if (is_evicted && !was) check_eviction(id, members[id].detail);
    if (!is_evicted && simulation_.is_here(id)) here |= only(id);
  }
  const std::uint32_t epoch = next.membership.view.epoch;
  if (epoch < decided_.membership.view.epoch) checker.violate("the epoch falls");
  if (next.term < decided_.term) checker.violate("the term falls");
  const bool is_new_end = next.membership.end && !decided_.membership.end;
  if (is_new_end && checker.is_enough(here)) checker.violate("the job ends although it has enough members");
  const std::vector<MemberId>& ranks = next.membership.view.members;
  const auto is_apart = [&](const Partition& one) {
    return std::none_of(ranks.begin(), ranks.end(), [&](MemberId id) { return host_of(id) == one.host; });
  };
  const bool is_later = epoch > decided_.membership.view.epoch;
  if (is_later && std::any_of(open_.begin(), open_.end(), is_apart)) ++report_.epochs_in_cuts;
  decided_ = std::move(next);
}

// A silent host has been so for a lease, and for a lease of this rendezvous.
void HostsSimulation::check_eviction(MemberId id, const std::string& why) {
  ++report_.run.evictions;
  const std::size_t index = host_of(id);
  const SimHost& host = hosts_[index];
  RunChecker& checker = simulation_.checker();
  if (why.find("is silent") != std::string::npos) {
    const bool was_silent = !host.heard || now() - *host.heard >= spec_.silence_limit;
    const bool had_time = now() - core_started_ >= std::max<Duration>(spec_.silence_limit, kLeastGrace);
    if (!was_silent || !had_time)
      checker.violate("member " + std::to_string(id) + " is evicted although its host has had no lease of time");
    ++report_.silences;
    checker.allow_eviction(id);
  }
  check_need(id);
  checker.evict(id, decided_.membership.view.epoch, now());
  if (!is_planted(HostsFault::kBlamesBothHosts) || why.find("lost one another") == std::string::npos) return;
  for (std::size_t other = 0; other < index; ++other) after(1ns, [this, other] { tell_core_of_ends(other); });
}

// One that waits, on a host that was heard within its lease.
void HostsSimulation::check_need(MemberId id) {
  const auto waits = [&](MemberId other) {
    const GuardedMember& known = known_[other];
    const std::size_t host = host_of(other);
    const auto& heard = hosts_[host].heard;
    const bool is_heard = serving_ == host || (heard && now() - *heard <= spec_.silence_limit);
    const bool is_frozen = known.frozen && known.frozen->epoch == decided_.membership.view.epoch;
    return other != id && is_frozen && is_heard;
  };
  for (MemberId other = 0; other < spec_.members(); ++other) {
    if (waits(other)) return;
  }
  simulation_.checker().violate("member " + std::to_string(id) + " is evicted although none that is heard waits");
}

// A planted fault: the members of the host go on.
void HostsSimulation::tell_core_of_ends(std::size_t index) {
  std::vector<HostEvent> events;
  for (const MemberId id : hosts_[index].members) events.emplace_back(MemberEnded{id, false, "the host is gone"});
  const std::uint64_t number = hosts_[index].registration;
  if (number != 0) on_core([&] { core_->report(number, events, now()); });
}

}  // namespace horo::sim
