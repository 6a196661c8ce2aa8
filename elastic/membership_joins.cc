// What JobMembership decides about processes that are started later: until one is in a View, it counts nowhere; until
// it has the state, it is the one that goes if the others miss it.
#include <algorithm>
#include <numeric>

#include "elastic/membership.h"
#include "elastic/texts.h"
#include "horo/base/check.h"

namespace horo {

void JobMembership::handle(const MemberStarted& event) {
  HORO_CHECK(config_.max_members > 0 && event.id == members_.size() && event.id < kMaxMembers);
  members_.emplace_back();
  silences_.add();
  joiners_.start(event.id);
  if (is_over()) refuse_joiner(event.id, "the job has ended");
}

// ---- Outside of all Views.

void JobMembership::take_from_outside(MemberId id, const MemberMessage& message) {
  if (!is_here(id)) return;
  if (const auto* ready = std::get_if<Ready>(&message)) {
    next_judgement_.reset();  // members that are parked may go on
    if (joiners_.ready(id, *ready, now_)) say("rank " + std::to_string(id) + " is ready");
    return compare_terms();
  }
  const auto* leave = std::get_if<Leave>(&message);
  if (leave == nullptr) return;
  const std::string why = printable(without_subject(leave->reason, id));
  lose_joiner(id, leave->failed ? Presence::kFailed : Presence::kLeft, why, leave->failed ? "failed" : "left");
}

// No member waits for it.
void JobMembership::lose_joiner(MemberId id, Presence how, const std::string& detail, const std::string& verb) {
  at(id).presence = how;
  at(id).detail = detail;
  joiners_.end(id);
  const std::string words = how == Presence::kLeft || detail.empty() ? "" : " (" + printable(detail) + ")";
  say("rank " + std::to_string(id) + " " + verb + words + " before it joined");
}

void JobMembership::refuse_joiner(MemberId id, const std::string& why) {
  const std::string text = "rank " + std::to_string(id) + " cannot join: " + why;
  send(id, Evicted{text});
  say(text);
  at(id).presence = Presence::kEvicted;
  at(id).detail = "cannot join: " + why;
  joiners_.end(id);
}

void JobMembership::take(MemberId id, const CanGrow& message) {
  joiners_.can_grow(id, message.terms);
  compare_terms();
}

void JobMembership::compare_terms() {
  if (here_ == 0) return;
  for (const auto& [id, difference] : joiners_.compare_with(here().front())) refuse_joiner(id, difference);
}

// They would be rank 0 without the state.
void JobMembership::refuse_first_ranks() {
  if (config_.max_members == 0) return;
  const auto first =
      std::find_if(view_.begin(), view_.end(), [this](MemberId id) { return is_here(id) && has_state(id); });
  if (first == view_.end()) return;
  for (const MemberId id : joiners_.outside()) {
    if (id < *first) refuse_joiner(id, "all ranks that were started before it are lost");
  }
}

bool JobMembership::can_grow() const {
  if (config_.max_members == 0 || is_over() || left_in_order() > 0) return false;
  const auto is_drained = [](const Member& member) { return member.is_drained; };
  if (std::any_of(members_.begin(), members_.end(), is_drained)) return false;
  const std::vector<MemberId> members = here();
  return std::all_of(members.begin(), members.end(), [this](MemberId id) { return joiners_.can_grow(id); });
}

// The members run in the epoch, all with the state, so they can come to a border.
void JobMembership::tell_grow() {
  if (config_.max_members == 0 || closing_ || is_over()) return;
  const bool may_grow = installed_ >= here_ && with_state_ == here_ && can_grow();
  const std::size_t room = may_grow ? std::max(most_members(here().front()), here_) - here_ : 0;
  tell_full(may_grow && room == 0);
  if (const auto grow = joiners_.next_grow(room, silences_, now_)) send_all(here(), *grow);
  if (!joiners_.is_late(now_)) return;
  const std::vector<MemberId> waiting = joiners_.candidates(silences_);
  say(ranks_text(waiting) + (waiting.size() == 1 ? " waits" : " wait") + " to join for " +
      duration_text(config_.join_timeout) + ": not all ranks have come to a step of horo.elastic.State");
}

void JobMembership::tell_full(bool is_full) {
  const std::vector<MemberId> waiting = is_full ? joiners_.candidates(silences_) : std::vector<MemberId>();
  if (waiting.empty() || std::exchange(is_full_told_, true)) return;
  const std::size_t most = most_members(here().front());
  const bool is_of_script = joiners_.most_with(here().front()) == most;
  say(ranks_text(waiting) + (waiting.size() == 1 ? " waits" : " wait") + " to join: there are " +
      std::to_string(here_) + " ranks, and " + (is_of_script ? "the script can have" : "--max-np allows") +
      " at most " + std::to_string(most));
}

// As many as an epoch in which some join may have. All members have equal terms.
std::size_t JobMembership::most_members(MemberId member) const {
  return std::min(static_cast<std::size_t>(config_.max_members), joiners_.most_with(member));
}

void JobMembership::handle(const NoneIsStarted&) {
  if (joiner_wait_.is_on() && joiners_.outside().empty()) may_wait_ = false;
}

// ---- At the border.

// The others come to it by themselves: all have passed one exchange. A member that is asked to freeze before it is
// there would be at another place.
void JobMembership::open_border() {
  if (closing_) return;
  closing_ = Closing{std::nullopt, "ranks join"};
  closing_->is_border = true;
  border_until_ = now_ + config_.border_patience;
  if (!began_) began_ = now_;
}

// Those that go on have left the last epoch at one place: others can begin there with them. If only some have, each
// request for the growth runs again.
void JobMembership::add_joiners(View& view) const {
  view.at_border =
      std::all_of(view.members.begin(), view.members.end(), [this](MemberId id) { return at(id).frozen->at_border; });
  if (!view.at_border || !can_grow()) return;
  view.sets = at(view.members.front()).frozen->sets;
  const std::size_t most = most_members(view.members.front());
  for (const MemberId id : joiners_.candidates(silences_)) {
    if (view.members.size() >= most) break;
    view.members.push_back(id);
    view.joined.push_back(id);
    view.cards[id] = joiners_.card_of(id);
  }
  if (view.joined.empty()) view.sets.clear();
  std::sort(view.members.begin(), view.members.end());
}

// Some members have come to the border, and others, of which none is lost, have not in time.
bool JobMembership::has_failed_border(const View& view) const {
  return !view.at_border && departures_.is_empty() &&
         std::any_of(view.members.begin(), view.members.end(),
                     [this](MemberId id) { return at(id).frozen->at_border; });
}

void JobMembership::tell_begin(const View& view) {
  std::vector<MemberId> ranks(view.members.size());
  std::iota(ranks.begin(), ranks.end(), MemberId{0});
  const bool is_growth = closing_->is_border && departures_.is_empty();
  say((is_growth ? "" : cause_text()) + "epoch " + std::to_string(view.epoch) + " has " + ranks_text(view.members) +
      (view.members == ranks ? "" : " as " + ranks_text(ranks)) +
      (view.joined.empty() ? "" : ": " + ranks_text(view.joined) + (view.joined.size() == 1 ? " joins" : " join")));
}

// ---- In the first epochs, without the state.

void JobMembership::take(MemberId id, const Synced& message) {
  if (message.epoch > epoch_ || !joiners_.sync(id)) return;
  ++with_state_;
  silences_.of(id).is_joining = false;
  next_judgement_.reset();
  const auto waited = std::chrono::duration_cast<std::chrono::milliseconds>(now_ - joining_since_);
  say("rank " + std::to_string(id) + " has joined: " + (message.text.empty() ? "" : printable(message.text) + "; ") +
      "the others waited " + duration_text(waited));
}

// The others stand while one installs its first epoch and gets the state, so they do not wait for it as long as for a
// member that could not be replaced. If all of them are stopped, none waits.
bool JobMembership::drop_silent_joiner(const std::vector<MemberId>& members, const std::vector<MemberId>& silent) {
  const auto joiner = std::find_if(silent.begin(), silent.end(), [this](MemberId id) { return !has_state(id); });
  const bool is_missed = std::any_of(members.begin(), members.end(),
                                     [this](MemberId id) { return has_state(id) && !silences_.is_still(id); });
  if (joiner == silent.end() || !is_missed) return false;
  evict(*joiner, silences_.words(*joiner));
  return true;
}

// One that does not reach a member which is here goes, and the member is not counted. So does one whose id is below
// those of all members with the state: rank 0 of a View has it.
void JobMembership::drop_useless_joiners() {
  if (with_state_ == 0 || with_state_ == here_) return;
  bool is_first = true;
  for (const MemberId id : here()) {
    if (has_state(id)) {
      is_first = false;
      continue;
    }
    const auto lost = at(id).frozen->lost;
    const bool is_apart = lost && *lost < members_.size() && *lost != id && is_here(*lost) && has_state(*lost);
    if (is_first) evict(id, "has not got the state from the ranks that are lost");
    if (!is_first && is_apart)
      evict(id, "did not reach rank " + std::to_string(*lost), "did not reach " + name_of(*lost));
  }
}

// Too few are left, all frozen. Those that run or are started now may become enough with them: then the members that
// have the state go on alone, and come to a border.
bool JobMembership::wait_for_joiners() {
  if (!can_grow() || !may_wait_) return false;
  if (joiner_wait_.wait_for({}, now_)) {
    say(departures_.text() + left_text(here()) + ": parked for up to " + duration_text(config_.park_timeout) +
        ", until others are ready to join");
  }
  if (now_ >= joiner_wait_.until()) {
    has_waited_ = true;
    return false;
  }
  if (!joiner_wait_.tells(here_)) return true;
  send_all(here(), Parked{static_cast<std::uint32_t>(here_), static_cast<std::uint32_t>(config_.min_members)});
  return true;
}

// Those that are here would go on with what they have made up themselves.
void JobMembership::end_without_state() {
  if (left_in_order() < static_cast<std::size_t>(config_.min_members))
    return end_for_all(here(), "no rank that is left has the state: start the job again");
  for (const MemberId id : here()) evict(id, "joined when the others had ended");
}

std::optional<TimePoint> JobMembership::join_deadline() const {
  std::optional<TimePoint> next;
  if (config_.max_members == 0) return next;
  if (!closing_) next = joiners_.deadline(now_);
  if (closing_ && closing_->is_border && !has_asked_) next = border_until_;
  if (joiner_wait_.is_on()) next = std::min(next.value_or(TimePoint::max()), joiner_wait_.until());
  return next;
}

bool JobMembership::is_joiner_apart(MemberId id) const {
  if (id < static_cast<MemberId>(config_.members)) return false;
  const bool is_of_epoch = std::binary_search(view_.begin(), view_.end(), id);
  return !has_state(id) || (!is_of_epoch && at(id).presence != Presence::kLeft);
}

std::size_t JobMembership::left_in_order() const {
  std::size_t count = 0;
  for (MemberId id = 0; id < members_.size(); ++id) {
    if (at(id).presence == Presence::kLeft && has_state(id)) ++count;
  }
  return count;
}

std::size_t JobMembership::with_state(const std::vector<MemberId>& ids) const {
  return static_cast<std::size_t>(std::count_if(ids.begin(), ids.end(), [this](MemberId id) { return has_state(id); }));
}

// A member that has left in good order has done its part: the others, which end later, go on without it. Processes that
// are ready to join, or have joined and not got the state, are as good as members if one has the state for them.
bool JobMembership::is_enough(std::size_t with_state) const {
  std::size_t count = with_state + left_in_order();
  if (config_.max_members > 0 && with_state > 0) count += here_ - with_state_ + joiners_.candidates(silences_).size();
  return count >= static_cast<std::size_t>(config_.min_members);
}

}  // namespace horo
