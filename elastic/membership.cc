// After each event: silent members that another one waits for are evicted; then, if the epoch ends and no member of it
// is waited for, the next epoch is decided, or the rest parks.
#include "elastic/membership.h"

#include <algorithm>
#include <numeric>

#include "elastic/missing_effects.h"
#include "elastic/texts.h"
#include "horo/base/check.h"

namespace horo {
JobMembership::JobMembership(const MembershipConfig& config)
    : config_(config),
      members_(static_cast<std::size_t>(config.members)),
      view_(static_cast<std::size_t>(config.members)),
      silences_(members_.size(), {config.silence_limit, config.start_limit, config.joiner_limit}),
      joiners_({static_cast<MemberId>(config.members), config.join_window, config.join_timeout}),
      parking_(config.park_timeout),
      joiner_wait_(config.park_timeout) {
  HORO_CHECK(config.members >= 1 && config.min_members >= 1 && config.min_members <= config.members);
  std::iota(view_.begin(), view_.end(), MemberId{0});
  sent_view_ = std::make_shared<const GuardMessage>(View{});
  recount();
}

std::vector<MembershipAction> JobMembership::on(const MembershipEvent& event, TimePoint now) {
  now_ = now;
  const bool is_start = std::holds_alternative<MemberStarted>(event);  // its id is known from then on
  if (!end_ || is_start) std::visit([this](const auto& one) { handle(one); }, event);
  return conclude();
}

std::vector<MembershipAction> JobMembership::conclude() {
  if (!end_) {
    if (closing_ && (!closing_->is_border || now_ >= border_until_)) ask_to_freeze();
    refuse_first_ranks();
    judge_silence();
    decide();
    tell_running();
    tell_grow();
    tell_over();
  }
  return std::exchange(actions_, {});
}

// ---- Events.

void JobMembership::handle(const MemberEnded& event) {
  silences_.of(event.id).stopped.reset();
  if (!is_here(event.id)) return;
  if (is_outside(event.id)) {
    const bool has_left = event.succeeded;
    return lose_joiner(event.id, has_left ? Presence::kLeft : Presence::kDied, event.how, has_left ? "left" : "died");
  }
  const std::string name = "rank " + std::to_string(event.id);
  if (event.succeeded) {  // a script that made no session, or ended without shutdown()
    depart(event.id, Presence::kLeft, name + " left", name_of(event.id) + " left before the epoch began");
  } else {
    at(event.id).detail = event.how;
    depart(event.id, Presence::kDied, name + " died (" + event.how + ")", name_of(event.id) + " ended: " + event.how);
  }
}

void JobMembership::handle(const MemberStopped& event) {
  if (!is_here(event.id) || silences_.of(event.id).stopped) return;
  silences_.of(event.id).stopped = now_;
  next_judgement_.reset();
  if (is_outside(event.id)) return say("rank " + std::to_string(event.id) + " is stopped before it has joined");
  say("rank " + std::to_string(event.id) + " is stopped; if it does not continue within " +
      duration_text(silences_.limit_of(event.id)) + ", it is evicted when another rank waits for it");
}

void JobMembership::handle(const MemberContinued& event) {
  if (!is_here(event.id) || !silences_.of(event.id).stopped) return;
  silences_.go_on(event.id, is_outside(event.id) ? std::vector<MemberId>{} : here(), now_);
  next_judgement_.reset();
  say("rank " + std::to_string(event.id) + " continues");
}

void JobMembership::handle(const MembersUnheard& event) {
  for (const MemberId id : event.ids) silences_.of(id).unheard = event.why;
  next_judgement_.reset();
}

void JobMembership::handle(const MembersHeard& event) {
  for (const MemberId id : event.ids) silences_.hear(id, now_);
  next_judgement_.reset();
}

void JobMembership::count_from(TimePoint now) {
  silences_.count_from(now);
  parking_.count_from(now);
  joiner_wait_.count_from(now);
  border_until_ = std::max(border_until_, now + config_.border_patience);
  next_judgement_.reset();
}

void JobMembership::handle(const MemberSent& event) {
  Silence& silence = silences_.of(event.id);
  if (!std::exchange(silence.has_spoken, true) && silence.asked) next_judgement_.reset();
  if (is_outside(event.id)) return take_from_outside(event.id, event.message);
  if (is_here(event.id)) return std::visit([&](const auto& message) { take(event.id, message); }, event.message);
  const auto* leave = std::get_if<Leave>(&event.message);
  if (leave != nullptr && leave->failed && at(event.id).presence == Presence::kLeft) take_back_leave(event.id, *leave);
}

// The first report that names a member has seen it; the later ones may repeat what the guard has told. A report before
// it, of a member that was told by a peer, names none.
void JobMembership::take(MemberId id, const Frozen& message) {
  Member& member = at(id);
  if (message.epoch > epoch_) {
    say("rank " + std::to_string(id) + " froze in epoch " + std::to_string(message.epoch) + ", but the epoch is " +
        std::to_string(epoch_) + ": ignored");
  }
  if (message.epoch != epoch_ || member.frozen) return;
  member.frozen = message;
  silences_.of(id).asked.reset();
  if (--waited_for_ == 0 || !is_waited_ || is_parked()) next_judgement_.reset();
  if (message.at_border) return open_border();
  const bool is_first = !closing_ || closing_->is_border;
  close_epoch(message.lost, message.reason.empty() ? name_of(id) + " froze" : message.reason);
  if (is_first) closing_->is_report = true;
  const bool is_known = message.lost && std::binary_search(view_.begin(), view_.end(), *message.lost);
  if (!is_known || *message.lost == id) return;
  if (has_state(id) && !has_state(*message.lost)) {
    const std::string why = "was not reached by ";
    if (is_here(*message.lost)) evict(*message.lost, why + "rank " + std::to_string(id), why + name_of(id));
  } else if (has_state(*message.lost) && !closing_->pair && !silences_.is_still(*message.lost)) {
    closing_->pair = std::pair(std::min(id, *message.lost), std::max(id, *message.lost));
  }
}

void JobMembership::take(MemberId id, const Installed& message) {
  if (message.epoch != epoch_ || std::exchange(at(id).is_installed, true)) return;
  ++installed_;
  if (!closing_) silences_.of(id).asked.reset();
}

void JobMembership::take(MemberId id, const Leave& message) {
  const std::string name = "rank " + std::to_string(id);
  at(id).detail = message.reason;
  if (!message.failed)
    return depart(id, Presence::kLeft, name + left_words(message.reason), name_of(id) + " left before the epoch began");
  fail(id, message);
  depart(id, Presence::kFailed, failed_words(id), name_of(id) + " failed: " + message.reason);
}

void JobMembership::fail(MemberId id, const Leave& message) {
  Member& member = at(id);
  member.detail = message.reason;
  member.failure = message.failure;
  member.failed = now_;
}

// The process of a member that has left ends as a failure (Exits). The others need not freeze for one that has no part
// in their epoch, unless they are too few without it.
void JobMembership::take_back_leave(MemberId id, const Leave& message) {
  fail(id, message);
  departures_.take_back(id);
  at(id).presence = Presence::kFailed;
  ++changes_;
  const bool is_of_epoch = std::binary_search(view_.begin(), view_.end(), id);
  const std::string reason = name_of(id) + " failed: " + message.reason;
  if (here_ > 0 && is_of_epoch) return depart(id, Presence::kFailed, failed_words(id), reason);
  if (here_ == 0 || is_enough(with_state_)) return say(failed_words(id));
  departures_.add(id, true, failed_words(id));
  close_epoch(std::nullopt, reason);
}

// ---- The end of an epoch.

// A member that left in good order does not end an epoch that it has installed: at the end of a job all leave one after
// the other. The others cannot install an epoch without one of its members.
void JobMembership::depart(MemberId id, Presence how, const std::string& story, const std::string& reason) {
  at(id).presence = how;
  ++changes_;
  recount();
  departures_.add(id, how == Presence::kDied || how == Presence::kFailed, story);
  const bool began =
      epoch_ > 0 || silences_.of(id).has_spoken;  // else it may be a program without a session, as the others
  if (how == Presence::kLeft && (at(id).is_installed || at(id).frozen || !began)) return;
  close_epoch(id, reason);
  if (!closing_->is_report) return;
  closing_->lost = id;  // the cause of what the first report tells
  closing_->reason = reason;
  closing_->is_report = false;
}

void JobMembership::close_epoch(std::optional<MemberId> lost, const std::string& reason) {
  if (!closing_ || closing_->is_border) closing_ = Closing{lost, reason};
  ask_to_freeze();
}

void JobMembership::ask_to_freeze() {
  if (!began_) began_ = now_;
  if (std::exchange(has_asked_, true)) return;
  std::vector<MemberId> asked;
  for (const MemberId id : view_) {
    if (!is_waited_for(id)) continue;
    silences_.of(id).asked = now_;
    asked.push_back(id);
  }
  next_judgement_.reset();
  send_all(asked, Freeze{epoch_, closing_->lost, closing_->reason});
}

void JobMembership::evict(MemberId id, const std::string& why) {
  evict(id, why, why);
}

// The two texts differ where they name a rank: in the story by its number at the start.
void JobMembership::evict(MemberId id, const std::string& why, const std::string& for_members) {
  const char* const then = is_enough(with_state_ - (has_state(id) ? 1 : 0)) ? ", and the other ranks went on without it"
                                                                            : ", and too few ranks were left";
  send(id, Evicted{name_of(id) + " was evicted: it " + for_members + then});
  const std::string story = "rank " + std::to_string(id) + " is evicted";
  say(story + ": it " + why);
  at(id).detail = "it " + why;
  depart(id, Presence::kEvicted, story, name_of(id) + " was evicted: it " + for_members);
}

// A member waits if it is frozen, and neither stopped nor unheard itself. A member that runs does not, as far as is
// known here: it is told which others are missed, and freezes if it waits for one of them.
void JobMembership::judge_silence() {
  if (next_judgement_ && now_ < *next_judgement_) return;
  const std::vector<MemberId> members = here();
  is_waited_ = std::any_of(members.begin(), members.end(), [this](MemberId id) { return is_waiting(id); });
  const auto [silent, next] = silences_.judge(members, now_);
  next_judgement_ = next;
  has_silent_ = !silent.empty();
  if (!closing_) tell_missed(silent);
  if (silent.empty()) return end_hold();
  if (drop_silent_joiner(members, silent)) return judge_silence();
  if (!is_waited_) return parking_.pause(now_);
  const bool may_go_on_without = is_enough(with_state_ - with_state(silent));
  if (may_go_on_without || !is_enough(with_state_)) return give_up(silent);
  hold(silent);
}

// ---- The next epoch.

void JobMembership::decide() {
  if (!closing_ || waited_for_ > 0 || here_ == 0) return;
  if (parking_.is_on() && is_enough(with_state_)) return;  // some have frozen, and were stopped since
  const auto until = alike_until();
  if (until && now_ < *until) return settle();
  drop_useless_joiners();
  count_broken_pair();
  const std::vector<MemberId> next = here();
  if (next.empty()) return;
  if (with_state_ == 0) return end_without_state();
  if (is_enough(with_state_)) return begin_epoch(next);
  settle();
  if (!end_ && !wait_for_joiners()) end_too_few();
}

// All that are out of this epoch have failed alike: the others may do so until then.
std::optional<TimePoint> JobMembership::alike_until() const {
  const Member* last = nullptr;
  for (const MemberId id : view_) {
    const Member& member = at(id);
    if (is_here(id) || !has_state(id)) continue;
    if (member.presence != Presence::kFailed || member.failure.empty()) return std::nullopt;
    if (last != nullptr && last->failure != member.failure) return std::nullopt;
    if (last == nullptr || last->failed < member.failed) last = &member;
  }
  if (last == nullptr) return std::nullopt;
  return std::max(last->failed, silences_.counted_from()) + config_.alike_window;
}

// The members that are frozen deliver what is done before it is decided how the job goes on: their scripts may fail as
// those of the others have, or end.
void JobMembership::settle() {
  if (is_settled()) return;
  std::optional<Effects> effects = effects_of(here());
  if (!effects) return end_without_effects(here());
  Settle message{epoch_, {}, std::move(*effects)};
  for (const MemberId id : here()) message.progress[id] = at(id).frozen->progress;
  if (!fits(message.progress, {})) return end_too_large(here());
  ++changes_;
  settled_ = std::make_shared<const GuardMessage>(std::move(message));
  for (const MemberId id : here()) send(id, settled_);
}

// If the epochs end again and again because two members miss one another, and no member dies, one of the two goes.
void JobMembership::count_broken_pair() {
  if (here_ < view_.size()) return broken_.clear();
  const auto pair = closing_->pair;
  if (!pair) return;
  if (host_of(pair->first) != host_of(pair->second))
    return count_broken_hosts(host_of(pair->first), host_of(pair->second));
  if (!broken_.add_members(*pair)) return;
  const std::string times = " lost one another " + std::to_string(BrokenLinks::kMost) + " times";
  evict(pair->second, "and rank " + std::to_string(pair->first) + times, "and " + name_of(pair->first) + times);
}

// The network between two hosts is cut: all members of one of them go.
void JobMembership::count_broken_hosts(std::uint32_t one, std::uint32_t other) {
  const auto hosts = std::minmax(one, other);
  if (!broken_.add_hosts(hosts)) return;
  for (const MemberId id : here()) {
    if (config_.hosts.at(id) != hosts.second) continue;
    evict(id, "and host " + std::to_string(hosts.first) + " lost one another " + std::to_string(BrokenLinks::kMost) +
                  " times (host " + std::to_string(hosts.second) + ")");
  }
}

void JobMembership::begin_epoch(const std::vector<MemberId>& members) {
  std::optional<Effects> effects = effects_of(members);
  if (!effects) return end_without_effects(members);
  View view{epoch_ + 1, members, {}, {}, closing_->reason, std::move(*effects)};
  for (const MemberId id : members) {
    view.progress[id] = at(id).frozen->progress;
    view.cards[id] = at(id).frozen->card;
  }
  add_joiners(view);
  if (has_failed_border(view)) joiners_.fail_border(now_);
  if (!fits(view.progress, view.cards)) return end_too_large(members);
  tell_begin(view);
  view_ = view.members;
  epoch_ = view.epoch;
  for (const MemberId id : view.joined) {
    joiners_.enter(id);
    silences_.of(id).is_joining = true;
    silences_.of(id).asked = joining_since_ = now_;
    if (began_) joining_since_ = *began_;
  }
  ++changes_;
  closing_.reset();
  has_asked_ = has_waited_ = has_told_missed_ = false;
  may_wait_ = true;
  is_full_told_ = false;
  missed_.clear();
  next_judgement_.reset();
  joiners_.begin_epoch();
  joiner_wait_.end();
  if (settled_ && std::get<Settle>(*settled_).epoch + 1 != epoch_) settled_.reset();
  is_restored_ = false;
  sent_view_ = std::make_shared<const GuardMessage>(std::move(view));
  departures_.clear();
  for (const MemberId id : view_) {
    Member& member = at(id);
    member.frozen.reset();
    member.is_installed = false;
    send(id, sent_view_);
  }
  recount();
}

std::optional<Effects> JobMembership::effects_of(const std::vector<MemberId>& members) const {
  std::vector<const Frozen*> frozen;
  for (const MemberId id : members) frozen.push_back(&*at(id).frozen);
  return missing_effects(frozen);
}

// The members would go on with different states.
void JobMembership::end_without_effects(const std::vector<MemberId>& members) {
  end_for_all(members, "some of " + ranks_text(members) +
                           " have applied more failures and changes of process sets that others have not than are " +
                           "kept (" + std::to_string(kMaxEffects) + " messages, " +
                           std::to_string(kMaxEffectBytes >> 20) + " MiB): start the job again");
}

// No message has room for what the members need to go on.
void JobMembership::end_too_large(const std::vector<MemberId>& members) {
  end_for_all(members, std::to_string(members.size()) + " ranks have more process sets or longer addresses than a " +
                           "new epoch has room for (" + std::to_string(kMaxLanesOfAll) + " sets and " +
                           std::to_string(kMaxCardBytesOfAll >> 20) + " MiB of all ranks): use fewer process sets");
}

void JobMembership::end_for_all(const std::vector<MemberId>& members, const std::string& why) {
  const std::string text = cause_text() + "the job ends: " + why;
  send_all(members, Evicted{text});
  end_job(text);
}

void JobMembership::end_job(const std::string& text) {
  end_ = text;
  ++changes_;
  joiner_wait_.end();
  for (const MemberId id : joiners_.outside()) refuse_joiner(id, "the job ends");
  actions_.emplace_back(EndJob{text});
}

// The failures that no decision has told.
void JobMembership::tell_over() {
  if (end_ || is_over_told_ || !is_over()) return;
  is_over_told_ = true;
  for (const MemberId id : joiners_.outside()) refuse_joiner(id, "the job has ended");
  if (view_.size() > 1 && alike_until()) {
    const bool are_all = view_.size() == members_.size();
    return say("all " + std::to_string(view_.size()) + " ranks " + (are_all ? "" : "that were left ") +
               "failed in the same way: " + printable(at(view_.front()).failure));
  }
  for (const std::string& text : departures_.failures()) say(text);
}

}  // namespace horo
