// Silent and evicted hosts.
#include <algorithm>
#include <chrono>
#include <iterator>
#include <numeric>
#include <utility>

#include "elastic/service/rendezvous_core.h"
#include "elastic/texts.h"

namespace horo {
namespace {

constexpr std::chrono::milliseconds kNextLook{500};  // while no host is heard
constexpr std::chrono::milliseconds kLeastDeaf{250};
constexpr std::chrono::seconds kRegisters{5};  // so long a call of Register may take
constexpr int kAbandoned = 10;

std::chrono::milliseconds registration_limit(const JobSpec& spec) {
  return spec.silence_limit + kRegisters;
}

}  // namespace

// Much longer than any part of the job waits for the rendezvous.
std::chrono::milliseconds abandoned_after(const JobSpec& spec) {
  return kAbandoned * (spec.silence_limit + spec.park_timeout);
}

bool RendezvousCore::is_abandoned() const {
  return ran_ - heard_ >= abandoned_after(record_.spec);
}

bool RendezvousCore::has_members_here(std::uint32_t host) const {
  const std::vector<MemberId> members = members_of(host);
  return std::any_of(members.begin(), members.end(), [this](MemberId id) { return !membership_->is_out(id); });
}

std::vector<MemberId> RendezvousCore::members_of(std::uint32_t host) const {
  std::vector<MemberId> members(record_.spec.ranks_by_host[host]);
  std::iota(members.begin(), members.end(), record_.spec.first_member(host));
  return members;
}

// ---- What this process hears.

// Each host calls several times in the longest turn of its network.
void RendezvousCore::begin_clocks() {
  awake_ = AwakeClock::for_limit(record_.spec.silence_limit);
  hearing_ = AwakeClock(std::max(record_.spec.silence_limit / 2, kLeastDeaf));
}

void RendezvousCore::note_time(TimePoint now) {
  ran_ = std::max(ran_, now);
  if (membership_ != nullptr && awake_.look(now)) listen_from(now);
}

// This process did not run, or heard no host: what was silent meanwhile may only not have been heard.
void RendezvousCore::listen_from(TimePoint now) {
  heard_ = now;
  const TimePoint until = now + std::max(record_.spec.silence_limit, kLeastGrace);
  for (auto& [number, host] : hosts_) host.lease_end = std::max(host.lease_end, until);
  membership_->count_from(now);
}

void RendezvousCore::hear(std::uint32_t number, TimePoint now, Actions& actions) {
  if (hearing_.look(now)) listen_from(now);
  heard_ = std::max(heard_, now);
  Host& host = hosts_.at(number);
  host.lease_end = std::max(host.lease_end, now + record_.spec.silence_limit);
  next_lease_end_ = std::min(next_lease_end_, host.lease_end);
  if (std::exchange(host.is_silent, false)) take(MembersHeard{members_of(number)}, now, actions);
}

std::string RendezvousCore::silence_of(std::uint32_t host) const {
  const std::string silent = " (host " + std::to_string(host) + " is silent)";
  if (!expected_.contains(host)) return "did not answer for " + duration_text(record_.spec.silence_limit) + silent;
  return "has not begun within " + duration_text(registration_limit(record_.spec)) +
         " of its first call to the rendezvous" + silent;
}

void RendezvousCore::expect_host(std::uint32_t host, std::uint64_t incarnation, TimePoint now) {
  note_time(now);
  const auto known = record_.incarnations.find(host);
  if (host >= kMaxHosts || (known != record_.incarnations.end() && known->second == incarnation)) return;
  expected_[host] = {incarnation, now};
  if (membership_ == nullptr || record_.is_over) return;
  await_registration(host);
  end_silence(host, now);
  store_changes();
}

void RendezvousCore::await_registration(std::uint32_t host) {
  if (host >= record_.spec.ranks_by_host.size()) return;
  TimePoint& lease_end = hosts_[host].lease_end;
  lease_end = std::max(lease_end, expected_.at(host).since + registration_limit(record_.spec));
  next_lease_end_ = std::min(next_lease_end_, lease_end);
  if (record_.incarnations.contains(host)) return;
  record_.expected[host] = expected_.at(host).incarnation;  // also for the next rendezvous
  is_record_changed_ = true;
}

// A host that is refused is not lost: a person may start it anew.
void RendezvousCore::forget_refused(std::uint32_t number, TimePoint now) {
  const auto host = hosts_.find(number);
  if (host == hosts_.end() || record_.incarnations.contains(number)) return;
  end_silence(number, now);
  hosts_.erase(host);
}

// The host has called, without a registration.
void RendezvousCore::end_silence(std::uint32_t number, TimePoint now) {
  const auto host = hosts_.find(number);
  if (host == hosts_.end() || !std::exchange(host->second.is_silent, false)) return;
  if (!hearing_.is_awake(now)) membership_->count_from(now);  // as in pass_time()
  Actions actions;
  take(MembersHeard{members_of(number)}, now, actions);
  carry_out(actions);
  update_view(now);
  wake();
}

// JobMembership decides what follows. While no host is heard, none is silent.
void RendezvousCore::look_for_silent_hosts(TimePoint now, Actions& actions) {
  if (now < next_lease_end_) return;
  const bool hears = hearing_.is_awake(now);
  next_lease_end_ = hears ? TimePoint::max() : now + kNextLook;
  for (auto& [number, host] : hosts_) {
    if (!hears || host.is_silent || !has_members_here(number)) continue;
    if (now < host.lease_end) {
      next_lease_end_ = std::min(next_lease_end_, host.lease_end);
      continue;
    }
    host.is_silent = true;
    take(MembersUnheard{members_of(number), silence_of(number)}, now, actions);
  }
}

// A host without a member in the job is locked out if it was silent, or if it has lost its members and one of them was
// evicted. A host that has done a part of the job in good order, and whose guard answers, hears the end of the job.
void RendezvousCore::note_evicted_hosts() {
  using Presence = MembershipSnapshot::Presence;
  const auto& members = record_.membership.members;
  auto next = members.begin();
  for (std::uint32_t host = 0; host < record_.spec.ranks_by_host.size(); ++host) {
    const auto first = std::exchange(next, next + record_.spec.ranks_by_host[host]);
    const auto is = [](Presence presence) { return [=](const auto& one) { return one.presence == presence; }; };
    const auto last = std::find_if(std::reverse_iterator(next), std::reverse_iterator(first), is(Presence::kEvicted));
    if (last == std::reverse_iterator(first) || std::any_of(first, next, is(Presence::kHere))) continue;
    const auto known = hosts_.find(host);
    if (known == hosts_.end() || host == home_ || record_.evicted.contains(host)) continue;
    if (!known->second.is_silent && std::any_of(first, next, is(Presence::kLeft))) continue;
    const auto rank = std::distance(members.begin(), last.base()) - 1;
    const std::string which = known->second.is_silent ? "" : " with its last rank, " + std::to_string(rank);
    record_.evicted[host] =
        "host " + std::to_string(host) + " was evicted" + which + ": " + printable(last->detail) +
        (record_.membership.end ? ", and too few ranks were left" : ", and the other ranks went on without it");
    if (const auto expected = expected_.find(host); expected != expected_.end())
      record_.incarnations.emplace(host, expected->second.incarnation);
    known->second.orders.clear();
    to_wake_.push_back(host);
  }
}

void RendezvousCore::check_evicted(std::uint32_t host) const {
  if (const auto found = record_.evicted.find(host); found != record_.evicted.end()) throw HostEvicted(found->second);
}

}  // namespace horo
