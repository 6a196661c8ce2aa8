// What JobMembership knows: in words for a person, as a snapshot for the one that takes its place, and again for
// members that may have lost what they were sent; and what it does about silent members.
#include <algorithm>
#include <iterator>
#include <numeric>

#include "elastic/membership.h"
#include "elastic/texts.h"
#include "horo/base/check.h"
#include "horo/base/error.h"

namespace horo {

// The guards tell again which members are stopped, frozen or installed, and those that have gone out since.
JobMembership::JobMembership(const MembershipConfig& config, const MembershipSnapshot& snapshot, TimePoint evicts_from)
    : JobMembership(config) {
  const auto& ids = snapshot.view.members;
  if (snapshot.members.size() != members_.size() || ids.empty() || ids.back() >= members_.size())
    throw ProtocolError("the record is that of another job");
  for (std::size_t id = 0; id < members_.size(); ++id) {
    members_[id].presence = snapshot.members[id].presence;
    members_[id].detail = snapshot.members[id].detail;
    members_[id].failure = snapshot.members[id].failure;
  }
  view_ = ids;
  epoch_ = snapshot.view.epoch;
  sent_view_ = std::make_shared<const GuardMessage>(snapshot.view);
  if (snapshot.settled) settled_ = std::make_shared<const GuardMessage>(*snapshot.settled);
  end_ = snapshot.end;
  broken_ = {snapshot.broken_pairs, snapshot.broken_hosts};
  silences_.none_before(evicts_from);
  is_restored_ = true;
  recount();
  is_over_told_ = is_over();
  for (const MemberId id : view_) restore_departure(id);
  if (!closing_ && here_ > 0 && !is_enough(with_state_)) restore_failed_exits();
}

// Members had left in good order and have failed since (take_back_leave), so too few are left.
void JobMembership::restore_failed_exits() {
  for (MemberId id = 0; id < members_.size(); ++id) {
    const bool is_of_epoch = std::binary_search(view_.begin(), view_.end(), id);
    if (is_of_epoch || at(id).presence != Presence::kFailed) continue;
    departures_.add(id, true, failed_words(id));
    if (!closing_) closing_ = Closing{std::nullopt, name_of(id) + " failed: " + at(id).detail};
  }
}

// The epoch ends, if the member's end was an evidence for that: the others may not have been asked to freeze.
void JobMembership::restore_departure(MemberId id) {
  const Member& member = at(id);
  const std::string name = "rank " + std::to_string(id);
  const auto depart = [&](const char* verb, const std::string& story, const std::string& reason) {
    const bool is_failure = member.presence == Presence::kDied || member.presence == Presence::kFailed;
    departures_.add(id, is_failure, name + verb + story);
    if (!closing_ && !reason.empty()) closing_ = Closing{id, name_of(id) + reason};
  };
  switch (member.presence) {
    case Presence::kLeft:
      return depart(left_words(member.detail).c_str(), "", "");
    case Presence::kFailed:
      return depart(failed_words(id).substr(name.size()).c_str(), "", " failed: " + member.detail);
    case Presence::kDied:
      return depart(" died", " (" + member.detail + ")", " ended: " + member.detail);
    case Presence::kEvicted:
      return depart(" is evicted", "", " was evicted: " + member.detail);
    case Presence::kHere:
      return;
  }
}

MembershipSnapshot JobMembership::snapshot() const {
  MembershipSnapshot now;
  update(now);
  return now;
}

// The View and the Settle of an epoch do not change, and may be large.
void JobMembership::update(MembershipSnapshot& now) const {
  now.members.clear();
  for (const Member& member : members_) now.members.push_back({member.presence, member.detail, member.failure});
  if (now.view.epoch != epoch_ || now.view.members.empty()) {
    now.view = std::get<View>(*sent_view_);
    now.view.epoch = epoch_;
    now.view.members = view_;
  }
  if (settled_ == nullptr) {
    now.settled.reset();
  } else if (const auto& settled = std::get<Settle>(*settled_); !now.settled || now.settled->epoch != settled.epoch) {
    now.settled = settled;
  }
  now.end = end_;
  now.broken_pairs = broken_.members();
  now.broken_hosts = broken_.hosts();
}

// All Views before the first Freeze of their epoch: a member handles a Freeze only in the epoch that it is in.
std::vector<MembershipAction> JobMembership::tell_again(const std::vector<Touched>& members, TimePoint now) {
  now_ = now;
  for (const Touched& one : members) {
    if (at(one.id).presence != Presence::kEvicted) continue;
    send(one.id, Evicted{"rank " + std::to_string(one.id) + " was evicted: " + at(one.id).detail +
                         ", and the other ranks went on without it"});
  }
  if (end_) return conclude();
  for (const Touched& one : members) tell_view_again(one);
  const bool is_begun_anew = is_restored_ && std::any_of(members.begin(), members.end(), [&](const Touched& one) {
                               return is_here(one.id) && one.viewed < epoch_;
                             });
  if (is_begun_anew) close_epoch(std::nullopt, "the rendezvous was started again while the epoch began");
  for (const Touched& one : members) {
    const Member& member = at(one.id);
    if (!is_here(one.id)) continue;
    if (!closing_ && (has_told_missed_ || is_restored_)) send(one.id, Missed{missed_});  // also that none is missed
    if (closing_ && !member.frozen) send(one.id, Freeze{epoch_, closing_->lost, closing_->reason});
    if (member.frozen && is_settled()) send(one.id, settled_);
    if (member.frozen && is_parked()) {
      send(one.id,
           Parked{static_cast<std::uint32_t>(parking_.told()), static_cast<std::uint32_t>(config_.min_members)});
    }
  }
  return conclude();
}

// A View of an epoch that another decision maker has begun has lost its secret. Members need it to deliver what it says
// is done; then they start again. If they were told to settle before, they deliver what that says, as the others did.
void JobMembership::tell_view_again(const Touched& touched) {
  if (!is_here(touched.id) || touched.viewed >= epoch_) return;
  if (settled_ && !is_settled()) send(touched.id, settled_);
  send(touched.id, sent_view_);
}

MemberState JobMembership::state_of(MemberId id) const {
  const Member& member = at(id);
  switch (member.presence) {
    case Presence::kLeft:
      return {"left", member.detail};
    case Presence::kFailed:
      return {"failed", member.detail};
    case Presence::kDied:
      return {"died", member.detail};
    case Presence::kEvicted:
      return {"evicted", member.detail};
    case Presence::kHere:
      break;
  }
  const std::string detail = member.is_drained ? kDrained : "";
  const Silence& silence = silences_.of(id);
  if (silence.stopped) return {"stopped", detail};
  if (silence.unheard) return {"silent", detail};
  if (!silence.has_spoken) return {"starting", detail};
  if (is_outside(id)) return {joiners_.is_ready(id) ? "ready" : "starting", detail};
  if (!has_state(id)) return {"joining", detail, true};
  if (member.frozen) return {is_parked() ? "parked" : "frozen", detail, true};
  return {member.is_installed ? "running" : "installing", detail, true};
}

// The guard tells it for each member of the host. One line of the story is for all of them.
void JobMembership::handle(const MemberDrained& event) {
  if (at(event.id).is_drained) return;
  std::vector<MemberId> leaving;
  for (MemberId id = 0; id < members_.size(); ++id) {
    if (host_of(id) != host_of(event.id)) continue;
    at(id).is_drained = true;
    if (is_here(id) && !is_outside(id)) leaving.push_back(id);
  }
  if (leaving.empty()) return;
  const std::string host = config_.hosts.empty() ? "the host" : "host " + std::to_string(host_of(event.id));
  say(host + " is drained (SIGTERM): " + ranks_text(leaving) +
      (leaving.size() == 1 ? " leaves after its round" : " leave after their round"));
}

std::string JobMembership::failed_words(MemberId id) const {
  return "rank " + std::to_string(id) + " failed (" + printable(without_subject(at(id).detail, rank_of(id))) + ")";
}

std::string JobMembership::left_words(const std::string& reason) {
  return reason.empty() ? " left" : " left (" + printable(reason) + ")";
}

std::vector<MemberId> JobMembership::judged_members() const {
  std::vector<MemberId> judged(members_.size());
  std::iota(judged.begin(), judged.end(), MemberId{0});
  std::erase_if(judged, [this](MemberId id) { return is_joiner_apart(id); });
  if (!is_enough(with_state_)) return judged;
  std::erase_if(judged, [&](MemberId id) { return !is_here(id) && at(id).presence != Presence::kLeft; });
  return judged;
}

std::optional<TimePoint> JobMembership::next_deadline() const {
  if (is_over()) return std::nullopt;
  std::optional<TimePoint> next = join_deadline();
  if (closing_ && waited_for_ == 0) {
    if (const auto until = alike_until(); until && now_ < *until) next = std::min(next.value_or(*until), *until);
  }
  TimePoint judgement = next_judgement_.value_or(now_);
  if (!next_judgement_) {
    const auto [silent, next_silence] = silences_.judge(here(), now_);
    if (silent.empty()) judgement = next_silence;
  }
  return judgement == TimePoint::max() ? next : std::min(judgement, next.value_or(judgement));
}

bool JobMembership::is_over() const {
  return end_ || here_ == 0;
}

JobMembership::Member& JobMembership::at(MemberId id) {
  HORO_CHECK(id < members_.size());
  return members_[id];
}

const JobMembership::Member& JobMembership::at(MemberId id) const {
  HORO_CHECK(id < members_.size());
  return members_[id];
}

std::vector<MemberId> JobMembership::here() const {
  std::vector<MemberId> found;
  std::copy_if(view_.begin(), view_.end(), std::back_inserter(found), [&](MemberId id) { return is_here(id); });
  return found;
}

std::size_t JobMembership::rank_of(MemberId id) const {
  return static_cast<std::size_t>(std::lower_bound(view_.begin(), view_.end(), id) - view_.begin());
}

std::string JobMembership::name_of(MemberId id) const {
  const std::size_t rank = rank_of(id);
  if (rank < view_.size() && view_[rank] == id && rank == id) return "rank " + std::to_string(id);
  const std::string at_start = "rank " + std::to_string(id) + " at the start";
  return rank < view_.size() && view_[rank] == id ? "rank " + std::to_string(rank) + " (" + at_start + ")" : at_start;
}

void JobMembership::recount() {
  here_ = with_state_ = waited_for_ = installed_ = 0;
  for (const MemberId id : view_) {
    const Member& member = at(id);
    if (!is_here(id)) continue;
    ++here_;
    if (has_state(id)) ++with_state_;
    if (!member.frozen) ++waited_for_;
    if (member.is_installed) ++installed_;
  }
  next_judgement_.reset();
}

// ---- Silent members.

void JobMembership::give_up(const std::vector<MemberId>& silent) {
  parking_.end();
  for (const MemberId id : silent) evict(id, silences_.words(id));
}

void JobMembership::tell_missed(const std::vector<MemberId>& silent) {
  if (silent == missed_) return;
  missed_ = silent;
  has_told_missed_ = true;
  const auto message = std::make_shared<const GuardMessage>(Missed{silent});
  for (const MemberId id : here()) {
    if (!std::binary_search(silent.begin(), silent.end(), id)) send(id, message);
  }
}

// Without the silent members too few are left, so nothing is gained if they are given up before they are back.
void JobMembership::hold(const std::vector<MemberId>& silent) {
  const std::size_t others = here_ - silent.size();
  if (parking_.wait_for(silent, now_)) {
    say(ranks_text(silent) + (silent.size() == 1 ? " does" : " do") + " not answer; without " +
        (silent.size() == 1 ? "it " : "them ") + std::to_string(others) + (others == 1 ? " is" : " are") +
        " left, fewer than --min-np " + std::to_string(config_.min_members) + ": parked for up to " +
        duration_text(config_.park_timeout));
  }
  if (now_ >= parking_.until()) {
    has_waited_ = true;
    return give_up(silent);
  }
  next_judgement_ = std::min(*next_judgement_, parking_.until());
  if (!parking_.tells(others)) return;
  const auto message = std::make_shared<const GuardMessage>(
      Parked{static_cast<std::uint32_t>(others), static_cast<std::uint32_t>(config_.min_members)});
  for (const MemberId id : here()) {
    if (!std::binary_search(silent.begin(), silent.end(), id)) send(id, message);
  }
}

// After a pause of the caller none is silent yet, but those that were have not answered either.
void JobMembership::end_hold() {
  if (!parking_.is_on()) return;
  std::vector<MemberId>& held = parking_.missing();
  std::erase_if(held, [this](MemberId id) { return is_out(id); });
  const auto has_answered = [this](MemberId id) { return silences_.has_answered(id); };
  if (!std::all_of(held.begin(), held.end(), has_answered)) return;
  parking_.end();
  if (!held.empty()) say("the ranks that were missed answer again");
}

// ---- Messages and texts.

void JobMembership::send(MemberId id, std::shared_ptr<const GuardMessage> message) {
  actions_.emplace_back(SendToMember{id, std::move(message)});
}

void JobMembership::send(MemberId id, GuardMessage message) {
  send(id, std::make_shared<const GuardMessage>(std::move(message)));
}

void JobMembership::send_all(const std::vector<MemberId>& ids, GuardMessage message) {
  const auto shared = std::make_shared<const GuardMessage>(std::move(message));
  for (const MemberId id : ids) send(id, shared);
}

// A report of a member has its numbers, those of the epoch.
std::string JobMembership::cause_text() const {
  return departures_.is_empty() ? printable(at_start(closing_->reason, view_)) + "; " : departures_.text();
}

void JobMembership::tell_running() {
  if (!began_ || closing_ || here_ == 0 || installed_ < here_) return;
  const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(now_ - *began_);
  const auto count = std::count_if(view_.begin(), view_.end(), [&](MemberId id) { return at(id).is_installed; });
  const std::string all = count == 1 ? "its one member" : "all " + std::to_string(count) + " members";
  say("epoch " + std::to_string(epoch_) + " runs on " + all + " after " + duration_text(took));
  began_.reset();
}

// The frozen ones have delivered what is done.
void JobMembership::end_too_few() {
  const std::string why =
      has_waited_ ? ", and no other came back within " + duration_text(config_.park_timeout) + " (--park-timeout)"
                  : ", and none can come back";
  end_job(departures_.text() + left_text(here()) + why + ": start the job again");
}

std::string JobMembership::left_text(const std::vector<MemberId>& left) const {
  return ranks_text(left) + (left.size() == 1 ? " is" : " are") + " left of " + std::to_string(config_.members) +
         ", fewer than --min-np " + std::to_string(config_.min_members);
}

}  // namespace horo
