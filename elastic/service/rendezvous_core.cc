// The record is stored after each event that changes it, before the orders of that event are queued: a host never
// hears of a decision that a later rendezvous does not know.
#include "elastic/service/rendezvous_core.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "elastic/texts.h"
#include "horo/base/check.h"
#include "horo/base/error.h"

namespace horo {
namespace {

constexpr std::chrono::milliseconds kLeastGrace{3'000};  // after a start: so long the hosts have to register again
constexpr std::chrono::milliseconds kTick{1'000};        // pass_time() is due so often
constexpr std::chrono::milliseconds kLate{2'000};        // this process did not run: the hosts may have answered
constexpr std::size_t kMostOrders = 4'096;               // that a host has not taken
constexpr std::size_t kKeptLines = 1'000;
constexpr int kTermBits = 32;  // the number of a line or a registration is the term and its place in the term
constexpr std::size_t kMostEnded = 8'192;

MemberId id_of(const HostEvent& event) {
  return std::visit([](const auto& one) { return one.id; }, event);
}

MembershipEvent membership_event(const HostEvent& event) {
  return std::visit([](const auto& one) { return MembershipEvent(one); }, event);
}

std::string host_text(std::uint32_t host) {
  return "host " + std::to_string(host);
}

}  // namespace

RendezvousCore::RendezvousCore(RecordStore& store, std::function<void(std::uint32_t)> on_orders, TimePoint now)
    : store_(store), on_orders_(std::move(on_orders)), ran_(now) {
  const StoredRecord stored = store_.read();
  revision_ = stored.revision;
  if (revision_ > 0) record_ = decode_job_record(stored.bytes);
  stored_ = stored.bytes;
  ++record_.term;
  if (revision_ == 0) return;
  const TimePoint evicts_from = now + std::max(record_.spec.silence_limit, kLeastGrace);
  membership_ = std::make_unique<JobMembership>(membership_config(), record_.membership, evicts_from);
  for (const auto& [host, incarnation] : record_.incarnations) hosts_[host].lease_end = evicts_from;
  store_changes();
  if (!record_.is_over) carry_out({Say{"the rendezvous runs again, in term " + std::to_string(record_.term)}});
}

MembershipConfig RendezvousCore::membership_config() const {
  MembershipConfig config;
  config.members = static_cast<int>(record_.spec.members());
  config.min_members = static_cast<int>(record_.spec.min_members);
  config.silence_limit = record_.spec.silence_limit;
  config.park_timeout = record_.spec.park_timeout;
  for (std::uint32_t host = 0; host < record_.spec.ranks_by_host.size(); ++host) {
    config.hosts.insert(config.hosts.end(), record_.spec.ranks_by_host[host], host);
  }
  return config;
}

// ---- Registration.

void RendezvousCore::check_incarnation(std::uint32_t host, std::uint64_t incarnation) const {
  if (std::count(record_.ended.begin(), record_.ended.end(), incarnation) > 0)
    throw HostRefused("the job of " + host_text(host) + " is over, and another one has begun");
  const auto known = record_.incarnations.find(host);
  if (is_new_job(host, incarnation) || known == record_.incarnations.end() || known->second == incarnation) return;
  throw HostRefused("another horo run has begun the job as " + host_text(host) +
                    ": a job takes each --node-rank once. If that one has ended, the job goes on without it; a new job "
                    "can begin when it is over");
}

// A host of the last job may still ask for its end.
bool RendezvousCore::is_new_job(std::uint32_t host, std::uint64_t incarnation) const {
  if (membership_ == nullptr) return true;
  const auto known = record_.incarnations.find(host);
  return record_.is_over && (known == record_.incarnations.end() || known->second != incarnation);
}

Registration RendezvousCore::register_host(const HostHello& hello, TimePoint now) {
  note_time(now);
  check_hello(hello);
  check_incarnation(hello.host, hello.incarnation);
  const bool is_new = is_new_job(hello.host, hello.incarnation);
  for (const MemberPast& member : hello.past.members) {
    if (member.viewed <= (is_new ? 0 : membership_->epoch())) continue;
    throw HostRefused("the ranks of " + host_text(hello.host) + " are in epoch " + std::to_string(member.viewed) +
                      ", of which the rendezvous has no record: its folder is not that of this job");
  }
  if (is_new) begin_job(hello);
  if (!(hello.spec == record_.spec)) {
    throw HostRefused(host_text(hello.host) +
                      " was started with another number of hosts or ranks, --min-np, --evict-after or --park-timeout "
                      "than the first host: all hosts need the same");
  }
  record_.incarnations.emplace(hello.host, hello.incarnation);
  Host& host = hosts_[hello.host];
  host = Host{record_.term << kTermBits | ++registrations_, now + record_.spec.silence_limit, host.is_silent, {}};
  const Registration registration{host.registration, record_.term, record_.spec.silence_limit};
  for (const StoryTold& line : story_) {
    if (line.number > hello.past.told) host.orders.push_back(line);
  }
  take_past(hello, now);
  if (membership_->end_text()) host.orders.emplace_back(EndJob{*membership_->end_text()});
  told_view_.clear();  // this host has not seen it
  store_changes();
  tell_view();
  wake();
  return registration;
}

void RendezvousCore::check_hello(const HostHello& hello) {
  if (hello.host >= hello.spec.ranks_by_host.size())
    throw HostRefused("the job does not have " + host_text(hello.host));
  const MemberId first = hello.spec.first_member(hello.host);
  const std::uint32_t ranks = hello.spec.ranks_by_host[hello.host];
  if (hello.past.members.size() != ranks) throw HostRefused("a host does not tell of all its members");
  for (const MemberPast& member : hello.past.members) {
    const bool is_own = member.id >= first && member.id < first + ranks;
    const bool is_its = std::all_of(member.events.begin(), member.events.end(),
                                    [&](const HostEvent& event) { return id_of(event) == member.id; });
    if (!is_own || !is_its) throw HostRefused("a host tells of a member that it does not have");
  }
}

void RendezvousCore::begin_job(const HostHello& hello) {
  record_.spec = hello.spec;
  for (const auto& [host, incarnation] : record_.incarnations) record_.ended.push_back(incarnation);
  const std::size_t ended = record_.ended.size();
  if (ended > kMostEnded) record_.ended.erase(record_.ended.begin(), record_.ended.end() - kMostEnded);
  record_.incarnations.clear();
  record_.is_over = false;
  hosts_.clear();
  story_.clear();
  secret_epoch_ = 0;
  membership_ = std::make_unique<JobMembership>(membership_config());
}

// First all that has happened, then what the members need: what one member needs depends on the others. A past has no
// MemberContinued: a member that is not stopped may have been, when the host told of it last. Orders of this host's
// members that come of its past are left out, since tell_again() has them in their order.
void RendezvousCore::take_past(const HostHello& hello, TimePoint now) {
  for (const MemberPast& member : hello.past.members) {
    const bool is_stopped = std::any_of(member.events.begin(), member.events.end(), [](const HostEvent& event) {
      return std::holds_alternative<MemberStopped>(event);
    });
    if (!is_stopped) carry_out(membership_->on(MemberContinued{member.id}, now), hello.host);
    for (const HostEvent& event : member.events) carry_out(membership_->on(membership_event(event), now), hello.host);
  }
  std::vector<JobMembership::Touched> members;
  for (const MemberPast& member : hello.past.members) members.push_back({member.id, member.viewed});
  carry_out(membership_->tell_again(members, now));
}

RendezvousCore::Host& RendezvousCore::registered(std::uint64_t registration) {
  for (auto& [number, host] : hosts_) {
    if (registration != 0 && host.registration == registration) return host;
  }
  throw NotRegistered("the host has to register again");
}

std::uint32_t RendezvousCore::host_of(std::uint64_t registration) const {
  for (const auto& [number, host] : hosts_) {
    if (registration != 0 && host.registration == registration) return number;
  }
  throw NotRegistered("the host has to register again");
}

// ---- Calls of a registered host.

void RendezvousCore::report(std::uint64_t registration, const std::vector<HostEvent>& events, TimePoint now) {
  beat(registration, now);
  const std::uint32_t host = host_of(registration);
  for (const HostEvent& event : events) {
    const MemberId id = id_of(event);
    if (id >= record_.spec.members() || record_.spec.host_of(id) != host)
      throw HostRefused("a host tells of a member that it does not have");
  }
  for (const HostEvent& event : events) carry_out(membership_->on(membership_event(event), now));
  store_changes();
  tell_view();
  wake();
}

void RendezvousCore::beat(std::uint64_t registration, TimePoint now) {
  note_time(now);
  Host& host = registered(registration);
  host.lease_end = std::max(host.lease_end, now + record_.spec.silence_limit);
}

std::optional<HostOrder> RendezvousCore::take_order(std::uint64_t registration) {
  Host& host = registered(registration);
  if (host.orders.empty()) return std::nullopt;
  HostOrder first = std::move(host.orders.front());
  host.orders.pop_front();
  return first;
}

// ---- Time.

bool RendezvousCore::has_members_here(std::uint32_t host) const {
  const MemberId first = record_.spec.first_member(host);
  const std::uint32_t ranks = record_.spec.ranks_by_host[host];
  for (MemberId id = first; id < first + ranks; ++id) {
    if (!membership_->is_out(id)) return true;
  }
  return false;
}

void RendezvousCore::note_time(TimePoint now) {
  const bool did_run = now - ran_ < kTick + kLate;
  ran_ = std::max(ran_, now);
  if (did_run || membership_ == nullptr) return;
  const TimePoint until = now + std::max(record_.spec.silence_limit, kLeastGrace);
  for (auto& [number, host] : hosts_) host.lease_end = std::max(host.lease_end, until);
  membership_->evict_not_before(until);
}

void RendezvousCore::pass_time(TimePoint now) {
  note_time(now);
  if (membership_ == nullptr) return;
  for (auto& [number, host] : hosts_) {
    if (host.is_silent || now < host.lease_end || !has_members_here(number)) continue;
    host.is_silent = true;
    const std::string why =
        "did not answer for " + duration_text(record_.spec.silence_limit) + " (" + host_text(number) + " is silent)";
    const MemberId first = record_.spec.first_member(number);
    for (MemberId id = first; id < first + record_.spec.ranks_by_host[number]; ++id) {
      carry_out(membership_->on(MemberSilent{id, why}, now));
    }
  }
  carry_out(membership_->on(TimePassed{}, now));
  store_changes();
  tell_view();
  wake();
}

std::optional<TimePoint> RendezvousCore::next_deadline() const {
  if (membership_ == nullptr || membership_->is_over()) return std::nullopt;
  TimePoint next = std::min(membership_->next_deadline().value_or(ran_ + kTick), ran_ + kTick);
  for (const auto& [number, host] : hosts_) {
    if (!host.is_silent && has_members_here(number)) next = std::min(next, host.lease_end);
  }
  return next;
}

std::optional<JobView> RendezvousCore::job() const {
  if (membership_ == nullptr) return std::nullopt;
  return job_view_of(*membership_, record_.spec.members());
}

// ---- Orders.

void RendezvousCore::store_changes() {
  if (membership_ == nullptr) return;
  record_.membership = membership_->snapshot();
  record_.is_over = membership_->is_over();
  std::vector<std::byte> bytes = encode(record_);
  if (bytes == stored_) return;
  try {
    if (!store_.write(revision_, bytes)) throw StoreLost("another rendezvous has written to the record of the job");
  } catch (const std::system_error& error) {
    throw StoreLost(std::string("the record of the job cannot be stored: ") + error.what());
  }
  ++revision_;
  stored_ = std::move(bytes);
}

void RendezvousCore::carry_out(std::vector<MembershipAction> actions, std::optional<std::uint32_t> except) {
  if (actions.empty()) return;
  store_changes();
  for (MembershipAction& action : actions) {
    if (auto* sent = std::get_if<SendToMember>(&action)) {
      if (auto* view = std::get_if<View>(&sent->message)) {
        if (view->epoch != secret_epoch_) secret_ = make_job_key();
        secret_epoch_ = view->epoch;
        view->secret = secret_;
      }
      const auto host = static_cast<std::uint32_t>(record_.spec.host_of(sent->id));
      if (host != except) order(host, std::move(*sent));
    } else if (const auto* say = std::get_if<Say>(&action)) {
      story_.push_back({record_.term << kTermBits | ++lines_, say->text});
      if (story_.size() > kKeptLines) story_.erase(story_.begin());
      tell_all(story_.back());
    } else if (const auto* end = std::get_if<EndJob>(&action)) {
      tell_all(*end);
    }
  }
}

void RendezvousCore::tell_view() {
  if (membership_ == nullptr) return;
  const HostOrder view = job_view_of(*membership_, record_.spec.members());
  std::vector<std::byte> bytes = encode(AgentSays(view));
  if (bytes == told_view_) return;
  told_view_ = std::move(bytes);
  tell_all(view);
}

void RendezvousCore::tell_all(const HostOrder& one) {
  for (const auto& [number, host] : hosts_) order(number, one);
}

// A host that takes no orders registers again, and is told what it needs then.
void RendezvousCore::order(std::uint32_t number, HostOrder one) {
  const auto found = hosts_.find(number);
  if (found == hosts_.end() || found->second.registration == 0) return;
  Host& host = found->second;
  host.orders.push_back(std::move(one));
  if (host.orders.size() > kMostOrders) {
    host.orders.clear();
    host.registration = 0;
  }
  to_wake_.push_back(number);
}

void RendezvousCore::wake() {
  std::sort(to_wake_.begin(), to_wake_.end());
  to_wake_.erase(std::unique(to_wake_.begin(), to_wake_.end()), to_wake_.end());
  for (const std::uint32_t host : std::exchange(to_wake_, {})) on_orders_(host);
}

}  // namespace horo
