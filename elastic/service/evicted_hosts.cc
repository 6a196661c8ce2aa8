// Silent and evicted hosts.
#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>

#include "elastic/service/rendezvous_core.h"
#include "elastic/texts.h"

namespace horo {
namespace {

constexpr std::chrono::seconds kNextLook{1};   // at a host that is late as all others are
constexpr std::chrono::seconds kRegisters{5};  // so long a call of Register may take

std::chrono::milliseconds registration_limit(const JobSpec& spec) {
  return spec.silence_limit + kRegisters;
}

}  // namespace

// A host is silent if others are heard after it. When none is heard any more, the network of this process has failed,
// not all hosts at once.
bool RendezvousCore::is_missed(std::uint32_t number, TimePoint now) const {
  const TimePoint lease_end = hosts_.at(number).lease_end;
  if (now >= lease_end + record_.spec.park_timeout) return true;
  bool has_others = false;
  for (const auto& [other, host] : hosts_) {
    if (other == number || host.is_silent || !has_members_here(other)) continue;
    has_others = true;
    if (expected_.contains(other)) continue;  // its lease is longer: its end does not show when it was heard
    if (host.lease_end > lease_end + record_.spec.silence_limit / 2) return true;
  }
  return !has_others;
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
  if (membership_ != nullptr && !record_.is_over) await_registration(host);
}

void RendezvousCore::await_registration(std::uint32_t host) {
  if (host >= record_.spec.ranks_by_host.size()) return;
  TimePoint& lease_end = hosts_[host].lease_end;
  lease_end = std::max(lease_end, expected_.at(host).since + registration_limit(record_.spec));
  next_lease_end_ = std::min(next_lease_end_, lease_end);
}

void RendezvousCore::evict_silent_hosts(TimePoint now, Actions& actions) {
  if (now < next_lease_end_) return;
  next_lease_end_ = TimePoint::max();
  for (auto& [number, host] : hosts_) {
    if (host.is_silent || !has_members_here(number)) continue;
    if (now < host.lease_end || !is_missed(number, now)) {
      next_lease_end_ = std::min(next_lease_end_, now < host.lease_end ? host.lease_end : now + kNextLook);
      continue;
    }
    host.is_silent = true;
    const std::string why = silence_of(number);
    if (const auto expected = expected_.find(number); expected != expected_.end())
      record_.incarnations.emplace(number, expected->second.incarnation);
    const MemberId first = record_.spec.first_member(number);
    for (MemberId id = first; id < first + record_.spec.ranks_by_host[number]; ++id) {
      take(MemberSilent{id, why}, now, actions);
    }
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
    record_.evicted[host] = "host " + std::to_string(host) + " was evicted" + which + ": " + printable(last->detail) +
                            ", and the other ranks went on without it";
    known->second.orders.clear();
    to_wake_.push_back(host);
  }
}

void RendezvousCore::check_evicted(std::uint32_t host) const {
  if (const auto found = record_.evicted.find(host); found != record_.evicted.end()) throw HostEvicted(found->second);
}

}  // namespace horo
