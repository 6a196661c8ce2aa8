// The record is stored after each event that changes it, before the orders of that event are queued: a host never
// hears of a decision that a later rendezvous does not know.
#include "elastic/service/rendezvous_core.h"

#include <algorithm>
#include <iterator>
#include <system_error>
#include <utility>

#include "elastic/texts.h"
#include "horo/base/check.h"
#include "horo/base/error.h"

namespace horo {
namespace {

constexpr std::size_t kMostOrders = 4'096;  // that a host has not taken
// More than a Settle and a View, which a host may need at once when it has registered.
constexpr std::size_t kMostOrderBytes = 3 * kMaxHostMessage;
constexpr std::size_t kKeptLines = 1'000;
constexpr std::size_t kStoredLines = 64;
constexpr int kTermBits = 32;  // the number of a line or a registration is the term and its place in the term
constexpr std::size_t kMostEnded = 8'192;
// With many hosts the state of the job is told less often: what it costs grows with their square.
constexpr std::size_t kHostsToldAtOnce = 16;
constexpr std::chrono::milliseconds kViewPauseOfHost{1};

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

RendezvousCore::RendezvousCore(RecordStore& store, std::function<void(std::uint32_t)> on_orders, TimePoint now,
                               std::optional<std::uint32_t> home)
    : store_(store), on_orders_(std::move(on_orders)), home_(home), ran_(now), heard_(now) {
  const StoredRecord stored = store_.read();
  revision_ = stored.revision;
  if (revision_ > 0) record_ = decode_job_record(stored.bytes);
  ++record_.term;
  is_record_changed_ = true;
  if (revision_ == 0) return;
  const TimePoint evicts_from = now + std::max(record_.spec.silence_limit, kLeastGrace);
  const MembershipConfig config = membership_config();
  host_of_ = config.hosts;
  membership_ = std::make_unique<JobMembership>(config, record_.membership, evicts_from);
  view_.begin(job_view_of(*membership_, host_of_.size()));
  for (const auto& [host, incarnation] : record_.incarnations) hosts_[host].lease_end = evicts_from;
  for (const auto& [host, incarnation] : record_.expected) {
    expected_[host] = {incarnation, now};
    await_registration(host);
  }
  next_lease_end_ = evicts_from;
  begin_clocks();
  story_ = record_.story;
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
  if (is_new_job(host, incarnation)) return;
  check_evicted(host);
  if (known == record_.incarnations.end() || known->second == incarnation) return;
  throw HostRefused("another horo run has begun the job as " + host_text(host) +
                    ": a job takes each --node-rank once. If that one has ended, the job goes on without it; a new job "
                    "can begin when it is over, or when none of its hosts has been heard for " +
                    duration_text(abandoned_after(record_.spec)));
}

// A host of the last job may still ask for its end.
bool RendezvousCore::is_new_job(std::uint32_t host, std::uint64_t incarnation) const {
  if (membership_ == nullptr) return true;
  const auto known = record_.incarnations.find(host);
  const bool may_begin = record_.is_over || is_abandoned();
  return may_begin && (known == record_.incarnations.end() || known->second != incarnation);
}

Registration RendezvousCore::register_host(const HostHello& hello, TimePoint now) {
  note_time(now);
  const bool was_expected = expected_.erase(hello.host) > 0;
  if (record_.expected.erase(hello.host) > 0) is_record_changed_ = true;
  try {
    check_registration(hello);
  } catch (const HostRefused&) {
    if (was_expected) forget_refused(hello.host, now);
    store_changes();
    throw;
  }
  if (is_new_job(hello.host, hello.incarnation)) begin_job(hello);
  if (record_.incarnations.emplace(hello.host, hello.incarnation).second) is_record_changed_ = true;
  Host& host = hosts_[hello.host];
  end_registration(host);
  host = Host{record_.term << kTermBits | ++registrations_, TimePoint::min(), host.is_silent, {}, 0};
  registered_[host.registration] = hello.host;
  const Registration registration{host.registration, record_.term, record_.spec.silence_limit};
  for (const StoryTold& line : story_) {
    if (line.number > hello.past.told) host.orders.push(line, sizes_.of(line));
  }
  Actions actions;
  hear(hello.host, now, actions);
  carry_out(actions, hello.host);
  take_past(hello, now);
  if (membership_->end_text()) order(hello.host, EndJob{*membership_->end_text()});
  store_changes();
  update_view(now);
  to_wake_.push_back(hello.host);
  wake();
  return registration;
}

void RendezvousCore::check_registration(const HostHello& hello) const {
  check_hello(hello);
  check_incarnation(hello.host, hello.incarnation);
  const bool is_new = is_new_job(hello.host, hello.incarnation);
  for (const MemberPast& member : hello.past.members) {
    if (member.viewed <= (is_new ? 0 : membership_->epoch())) continue;
    throw HostRefused("the ranks of " + host_text(hello.host) + " are in epoch " + std::to_string(member.viewed) +
                      ", of which the rendezvous has no record: its folder is not that of this job");
  }
  if (is_new || hello.spec == record_.spec) return;
  throw HostRefused(host_text(hello.host) +
                    " was started with another number of hosts or ranks, --min-np, --evict-after or --park-timeout "
                    "than the first host: all hosts need the same");
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
  record_.membership = {};
  record_.evicted.clear();
  record_.story.clear();
  record_.is_over = false;
  is_record_changed_ = true;
  hosts_.clear();
  registered_.clear();
  next_lease_end_ = TimePoint::max();
  story_.clear();
  secrets_ = {};
  const MembershipConfig config = membership_config();
  host_of_ = config.hosts;
  membership_ = std::make_unique<JobMembership>(config);
  begin_clocks();
  view_.begin(first_job_view(host_of_.size()));
  next_view_ = {};
  const auto is_old = [&](const auto& one) { return one.second.since + record_.spec.silence_limit < ran_; };
  std::erase_if(expected_, is_old);
  record_.expected.clear();
  for (const auto& [host, expected] : expected_) await_registration(host);
}

// First all that has happened, then what the members need: what one member needs depends on the others. A past has no
// MemberContinued: a member that is not stopped may have been, when the host told of it last. Orders of this host's
// members that come of its past are left out, since tell_again() has them in their order.
void RendezvousCore::take_past(const HostHello& hello, TimePoint now) {
  Actions actions;
  for (const MemberPast& member : hello.past.members) {
    const bool is_stopped = std::any_of(member.events.begin(), member.events.end(), [](const HostEvent& event) {
      return std::holds_alternative<MemberStopped>(event);
    });
    if (!is_stopped) take(MemberContinued{member.id}, now, actions);
    for (const HostEvent& event : member.events) take(membership_event(event), now, actions);
  }
  carry_out(actions, hello.host);
  std::vector<JobMembership::Touched> members;
  for (const MemberPast& member : hello.past.members) members.push_back({member.id, member.viewed});
  carry_out(membership_->tell_again(members, now));
}

void RendezvousCore::take(const MembershipEvent& event, TimePoint now, Actions& actions) {
  Actions more = membership_->on(event, now);
  actions.insert(actions.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
}

RendezvousCore::Host& RendezvousCore::registered(std::uint64_t registration) {
  return hosts_.at(host_of(registration));
}

std::uint32_t RendezvousCore::host_of(std::uint64_t registration) const {
  const auto found = registered_.find(registration);
  if (found == registered_.end()) throw NotRegistered("the host has to register again");
  check_evicted(found->second);
  return found->second;
}

// ---- Calls of a registered host.

void RendezvousCore::report(std::uint64_t registration, const std::vector<HostEvent>& events, TimePoint now) {
  note_time(now);
  const std::uint32_t host = host_of(registration);
  for (const HostEvent& event : events) {
    const MemberId id = id_of(event);
    if (id >= host_of_.size() || host_of_[id] != host)
      throw HostRefused("a host tells of a member that it does not have");
  }
  Actions actions;
  hear(host, now, actions);
  for (const HostEvent& event : events) take(membership_event(event), now, actions);
  carry_out(actions);
  update_view(now);
  wake();
}

void RendezvousCore::beat(std::uint64_t registration, TimePoint now) {
  note_time(now);
  const std::uint32_t host = host_of(registration);
  const bool was_silent = hosts_.at(host).is_silent;
  Actions actions;
  hear(host, now, actions);
  carry_out(actions);
  if (was_silent) update_view(now);
  wake();
}

std::optional<HostOrder> RendezvousCore::take_order(std::uint64_t registration) {
  Host& host = registered(registration);
  if (host.orders.empty()) {
    if (host.told == view_.last()) return std::nullopt;
    return JobChanged{view_.since(std::exchange(host.told, view_.last()))};
  }
  return host.orders.pop();
}

// ---- Time.

void RendezvousCore::pass_time(TimePoint now) {
  note_time(now);
  if (membership_ == nullptr) return;
  if (!hearing_.is_awake(now))
    membership_->count_from(now);  // no host is heard: the network of this process may be cut
  Actions actions;
  look_for_silent_hosts(now, actions);
  take(TimePassed{}, now, actions);
  carry_out(actions);
  update_view(now);
  wake();
}

std::optional<TimePoint> RendezvousCore::next_deadline() const {
  if (membership_ == nullptr) return std::nullopt;
  const std::optional<TimePoint> view = is_view_old_ ? std::optional(next_view_) : std::nullopt;
  if (membership_->is_over()) return view;
  const TimePoint tick = std::min(awake_.due(ran_), next_lease_end_);
  return std::min({tick, membership_->next_deadline().value_or(tick), view.value_or(tick)});
}

std::optional<JobView> RendezvousCore::job() const {
  if (membership_ == nullptr) return std::nullopt;
  return job_view_of(*membership_, record_.spec.members());
}

// ---- Orders.

void RendezvousCore::store_changes() {
  if (membership_ == nullptr || (!is_record_changed_ && stored_membership_ == membership_->changes())) return;
  membership_->update(record_.membership);
  if (stored_membership_ != membership_->changes()) note_evicted_hosts();
  record_.is_over = membership_->is_over();
  try {
    if (!store_.write(revision_, encode(record_)))
      throw StoreLost("another rendezvous has written to the record of the job");
  } catch (const std::system_error& error) {
    throw StoreLost(std::string("the record of the job cannot be stored: ") + error.what());
  }
  ++revision_;
  is_record_changed_ = false;
  stored_membership_ = membership_->changes();
}

void RendezvousCore::carry_out(const Actions& actions, std::optional<std::uint32_t> except) {
  if (actions.empty()) return;
  std::vector<StoryTold> lines;
  for (const MembershipAction& action : actions) {
    if (const auto* say = std::get_if<Say>(&action)) lines.push_back(note_line(say->text));
  }
  store_changes();
  auto line = lines.begin();
  for (const MembershipAction& action : actions) {
    if (const auto* sent = std::get_if<SendToMember>(&action)) {
      const std::uint32_t host = host_of_.at(sent->id);
      if (host != except) send(host, sent->id, secrets_.with_secret(sent->message));
    } else if (std::holds_alternative<Say>(action)) {
      tell_all(*line++);
    } else if (const auto* end = std::get_if<EndJob>(&action)) {
      tell_all(*end);
    }
  }
}

StoryTold RendezvousCore::note_line(const std::string& text) {
  StoryTold line{record_.term << kTermBits | ++lines_, text.substr(0, kMaxStoryLine)};
  const auto keep = [&](std::vector<StoryTold>& lines, std::size_t most) {
    lines.push_back(line);
    if (lines.size() > most) lines.erase(lines.begin());
  };
  keep(story_, kKeptLines);
  keep(record_.story, kStoredLines);
  is_record_changed_ = true;
  return line;
}

// Members of a host that get the same message are named by one order.
void RendezvousCore::send(std::uint32_t number, MemberId id, std::shared_ptr<const GuardMessage> message) {
  const auto host = hosts_.find(number);
  if (host != hosts_.end() && !host->second.orders.empty()) {
    auto* last = std::get_if<SendToMembers>(host->second.orders.last());
    if (last != nullptr && last->message == message && last->ids.back() < id) return last->ids.push_back(id);
  }
  order(number, SendToMembers{{id}, std::move(message)});
}

// What hosts are told is stored before: a host may end when its members are out.
void RendezvousCore::update_view(TimePoint now) {
  is_view_old_ = true;
  if (now < next_view_) return;
  store_changes();
  is_view_old_ = false;
  if (!view_.update(job_view_of(*membership_, host_of_.size()))) return;
  if (hosts_.size() > kHostsToldAtOnce) next_view_ = now + kViewPauseOfHost * hosts_.size();
  for (const auto& [number, host] : hosts_) to_wake_.push_back(number);
}

void RendezvousCore::tell_all(const HostOrder& one) {
  for (const auto& [number, host] : hosts_) order(number, one);
}

// A host that takes no orders registers again, and is told what it needs then.
void RendezvousCore::order(std::uint32_t number, HostOrder one) {
  const auto found = hosts_.find(number);
  if (found == hosts_.end() || found->second.registration == 0 || record_.evicted.contains(number)) return;
  Host& host = found->second;
  const std::size_t bytes = sizes_.of(one);
  host.orders.push(std::move(one), bytes);
  if (host.orders.size() > kMostOrders || host.orders.bytes() > kMostOrderBytes) end_registration(host);
  to_wake_.push_back(number);
}

void RendezvousCore::end_registration(Host& host) {
  registered_.erase(host.registration);
  host.registration = 0;
  host.orders.clear();
}

void RendezvousCore::wake() {
  std::sort(to_wake_.begin(), to_wake_.end());
  to_wake_.erase(std::unique(to_wake_.begin(), to_wake_.end()), to_wake_.end());
  for (const std::uint32_t host : std::exchange(to_wake_, {})) on_orders_(host);
}

}  // namespace horo
