// Guards as in tools/horo/run/remote_decision.cc.
#include <algorithm>

#include "tests/elastic/service/hosts_simulation.h"

namespace horo::sim {
namespace {

using namespace std::chrono_literals;

constexpr Duration kEvictedPatience = 5s;  // when the job is over, or goes on without the host

}  // namespace

void GuardedMember::note(const MemberSent& event) {
  if (const auto* one = std::get_if<Installed>(&event.message)) {
    installed = *one;
    frozen.reset();
  }
  if (const auto* one = std::get_if<Frozen>(&event.message)) frozen = *one;
  if (const auto* one = std::get_if<Leave>(&event.message)) left = *one;
}

MemberPast GuardedMember::past(MemberId id, HostsFault fault) const {
  MemberPast past{id, viewed, {}};
  if (installed) past.events.emplace_back(MemberSent{id, *installed});
  if (frozen && fault != HostsFault::kForgetsFrozen) past.events.emplace_back(MemberSent{id, *frozen});
  if (left) past.events.emplace_back(MemberSent{id, *left});
  if (is_stopped) past.events.emplace_back(MemberStopped{id});
  if (ended && fault != HostsFault::kForgetsEnds) past.events.emplace_back(*ended);
  return past;
}

// The host ends with all that runs there, as does `horo run`.
void HostsSimulation::lose_host(std::size_t index) {
  SimHost& host = hosts_[index];
  if (host.is_dead) return;
  ++report_.lost_hosts;
  host.is_dead = true;
  ++host.agent;
  host.registration = 0;
  host.waiting.clear();
  for (const MemberId id : host.members) {
    simulation_.checker().allow_eviction(id);
    simulation_.end_member(id);
  }
  if (is_embedded_ && index == 0) crash();
}

// Without contact, members that wait for a decision do so for a while.
void HostsSimulation::update_park(std::size_t index) {
  SimHost& host = hosts_[index];
  const bool is_parked =
      std::any_of(host.members.begin(), host.members.end(), [&](MemberId id) { return known_[id].is_parked(); });
  if (host.has_contact || !is_parked || host.is_dead || host.is_locked_out) {
    host.park = 0;
    return;
  }
  if (host.park != 0) return;
  host.park = ++serial_;
  wait_for_park(index);
}

// After a pause of the guard the whole time begins anew.
void HostsSimulation::wait_for_park(std::size_t index) {
  after(spec_.park_timeout, [this, index, timer = hosts_[index].park, since = now()] {
    const SimHost& host = hosts_[index];
    if (host.park != timer) return;
    if (host.guard_runs <= since) return end_park(index);
    if (!waits_for_guard(index, [this, index] { wait_for_park(index); })) wait_for_park(index);
  });
}

void HostsSimulation::end_park(std::size_t index) {
  ++report_.lone_parks;
  if (is_planted(HostsFault::kDecidesAlone)) {
    View view;
    for (const MemberId id : hosts_[index].members) {
      if (!known_[id].is_parked()) continue;
      view.epoch = known_[id].frozen->epoch + 1;
      view.members.push_back(id);
      view.progress[id] = known_[id].frozen->progress;
    }
    for (const MemberId id : view.members) simulation_.pass_on(id, view);
  }
  for (const MemberId id : hosts_[index].members) {
    if (!known_[id].left) simulation_.end_member(id);
  }
}

// The rendezvous has evicted the host, and answers it no more.
void HostsSimulation::lock_out(std::size_t index) {
  SimHost& host = hosts_[index];
  if (host.is_dead || std::exchange(host.is_locked_out, true)) return;
  ++report_.locked_out;
  ++host.agent;
  host.registration = 0;
  update_park(index);
  for (const MemberId id : host.members) {
    if (!known_[id].left && !known_[id].ended) simulation_.pass_on(id, Evicted{"the host was evicted"});
    if (simulation_.is_stopped(id)) simulation_.end_member(id);
    after(kEvictedPatience, [this, id] { simulation_.end_member(id); });
  }
}

// ---- Orders.

void HostsSimulation::carry_out(std::size_t, const SendToMembers& order) {
  for (const MemberId id : order.ids) guard_passes(id, *order.message);
}

void HostsSimulation::guard_passes(MemberId id, const GuardMessage& message) {
  GuardedMember& known = known_[id];
  if (const auto* view = std::get_if<View>(&message)) {
    if (secrets_.emplace(view->epoch, view->secret).first->second != view->secret) ++report_.views_again;
    if (view->epoch <= known.viewed && !is_planted(HostsFault::kPassesOnOldViews)) return;
    known.viewed = view->epoch;
    for (MemberId one = 0; one < spec_.members() && is_planted(HostsFault::kGivesSecretsToEvicted); ++one) {
      const auto presence = decided_.membership.members[one].presence;
      if (presence == MembershipSnapshot::Presence::kEvicted) simulation_.pass_on(one, *view);
    }
  }
  if (const auto* freeze = std::get_if<Freeze>(&message)) {
    if (known.asked && freeze->epoch <= *known.asked) return;
    known.asked = freeze->epoch;
  }
  if (!known.ended) simulation_.pass_on(id, message);
}

void HostsSimulation::carry_out(std::size_t index, const EndJob&) {
  ++report_.run.ends_by_park;
  for (const MemberId id : hosts_[index].members) {
    if (!known_[id].left) simulation_.end_member(id);
  }
}

// When the job is over, those that are stopped are killed, and evicted ones have 5 s.
void HostsSimulation::carry_out(std::size_t index, const JobChanged& order) {
  JobView& view = hosts_[index].job;
  apply(*order.change, view);
  if (view.is_parked) ++report_.run.parks;
  if (std::any_of(view.members.begin(), view.members.end(), [](const auto& one) { return !one.is_out; })) return;
  for (const MemberId id : hosts_[index].members) {
    if (simulation_.is_stopped(id)) simulation_.end_member(id);
    after(kEvictedPatience, [this, id] { simulation_.end_member(id); });
  }
}

}  // namespace horo::sim
