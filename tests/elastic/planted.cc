#include "tests/elastic/planted.h"

#include <algorithm>

#include "elastic/commit.h"

namespace horo::sim {
namespace {

constexpr std::chrono::milliseconds kTurn{500};

}  // namespace

std::vector<MembershipAction> PlantedMembership::on(MembershipEvent event, TimePoint now) {
  std::vector<MembershipAction> actions;
  if (planted_ == Planted::kNone) return membership_.on(event, now);
  auto* sent = std::get_if<MemberSent>(&event);
  Frozen* frozen = sent != nullptr ? std::get_if<Frozen>(&sent->message) : nullptr;
  const auto* leave = sent != nullptr ? std::get_if<Leave>(&sent->message) : nullptr;
  const bool is_late = leave != nullptr && leave->failed && has(out_, sent->id);
  if (planted_ == Planted::kForgetsAFailedExit && is_late) return actions;
  if (twist(event)) return actions;
  if (planted_ == Planted::kTakesFrozenOfAnOldEpoch && frozen != nullptr) frozen->epoch = real().epoch();
  add(actions, event, now);
  add_of_joins(actions, event, now);
  const bool has_most = 2 * list_of(frozen_).size() > real().members().size();
  if (planted_ == Planted::kEvictsByCount && has_most) {
    for (const MemberId id : waited_for()) add(actions, MemberEnded{id, false, "count"}, now);
  }
  if (planted_ == Planted::kDecidesBeforeAllAreFrozen && frozen_ != 0) {
    const std::uint32_t epoch = epoch_;
    const Progress progress = frozen != nullptr ? frozen->progress : Progress{};
    for (const MemberId id : waited_for()) add(actions, MemberSent{id, Frozen{epoch, progress, {}, ""}}, now);
  }
  return actions;
}

void PlantedMembership::add(std::vector<MembershipAction>& actions, const MembershipEvent& event, TimePoint now) {
  note(event);
  for (MembershipAction& action : decide(event, now)) {
    auto* sent = std::get_if<SendToMember>(&action);
    const auto* view = sent != nullptr ? std::get_if<View>(sent->message.get()) : nullptr;
    const bool is_last = view != nullptr && sent->id == view->members.back();
    if (planted_ == Planted::kSendsTwoViewsOfAnEpoch && is_last) {
      View other = *view;
      other.progress.erase(other.progress.begin());
      sent->message = std::make_shared<const GuardMessage>(std::move(other));
    }
    if (planted_ == Planted::kGivesAnIdAgain && view != nullptr) give_id_again(*sent);
    actions.push_back(std::move(action));
  }
  if (real().epoch() != epoch_) frozen_ = 0;
  epoch_ = real().epoch();
}

// The event before JobMembership takes it. Returns whether it does not.
bool PlantedMembership::twist(MembershipEvent& event) {
  auto* sent = std::get_if<MemberSent>(&event);
  if (sent == nullptr) return false;
  auto* frozen = std::get_if<Frozen>(&sent->message);
  const bool is_ready = std::holds_alternative<Ready>(sent->message);
  if (planted_ == Planted::kForgetsJoinersIfParked) return is_ready && real().is_parked();
  if (frozen == nullptr) return false;
  if (planted_ == Planted::kAddsJoinersAnywhere && has_joiner("ready")) frozen->at_border = true;
  if (planted_ == Planted::kKeepsAMissedJoiner && frozen->lost && real().state_of(*frozen->lost).word == "joining")
    frozen->lost.reset();
  if (planted_ != Planted::kWaitsForAJoiner || !has_joiner("starting")) return false;
  held_.push_back(event);
  return true;
}

void PlantedMembership::add_of_joins(std::vector<MembershipAction>& actions, const MembershipEvent& event,
                                     TimePoint now) {
  if (!has_joiner("starting")) {
    for (const MembershipEvent& held : std::exchange(held_, {})) add(actions, held, now);
  }
  const auto* sent = std::get_if<MemberSent>(&event);
  if (planted_ == Planted::kGrowsBeforeAllCan && sent != nullptr && std::holds_alternative<Installed>(sent->message))
    add(actions, MemberSent{sent->id, CanGrow{"a=1"}}, now);
  const auto* frozen = sent != nullptr ? std::get_if<Frozen>(&sent->message) : nullptr;
  if (planted_ == Planted::kFreezesAtABorder && frozen != nullptr && frozen->at_border) {
    for (const MemberId id : waited_for())
      actions.emplace_back(SendToMember{id, std::make_shared<const GuardMessage>(Freeze{epoch_, {}, "a border"})});
  }
  if (planted_ == Planted::kForgetsWhoHasTheState && has_joiner("joining")) {
    for (const MemberId id : real().members()) add(actions, MemberSent{id, Synced{epoch_, ""}}, now);
  }
}

void PlantedMembership::give_id_again(SendToMember& sent) {
  View view = std::get<View>(*sent.message);
  MemberId old = 0;
  while (old < real().processes() && !real().is_out(old)) ++old;
  if (view.joined.empty() || old >= view.joined.front()) return;
  std::replace(view.members.begin(), view.members.end(), view.joined.front(), old);
  view.joined.front() = old;
  std::sort(view.members.begin(), view.members.end());
  sent.message = std::make_shared<const GuardMessage>(std::move(view));
}

bool PlantedMembership::has_joiner(const std::string& word) const {
  for (MemberId id = first_; id < real().processes(); ++id) {
    if (real().state_of(id).word == word) return true;
  }
  return false;
}

// A JobMembership that is given no pause of its loop, and one that evicts the members that it should only tell of.
std::vector<MembershipAction> PlantedMembership::decide(const MembershipEvent& event, TimePoint now) {
  if (planted_ == Planted::kCountsItsPauses) {
    for (TimePoint turn = last_turn_; last_turn_ > TimePoint{} && (turn += kTurn) < now;)
      membership_.on(MembersHeard{}, turn);
  }
  last_turn_ = now;
  std::vector<MembershipAction> actions = membership_.on(event, now);
  if (planted_ != Planted::kGivesUpWithoutNeed) return actions;
  for (const MembershipAction& action : std::vector(actions)) {
    const auto* sent = std::get_if<SendToMember>(&action);
    const auto* missed = sent != nullptr ? std::get_if<Missed>(sent->message.get()) : nullptr;
    if (missed == nullptr || missed->members.empty() || !missed_.insert(missed->members.front()).second) continue;
    const MemberId id = missed->members.front();
    actions.emplace_back(SendToMember{id, std::make_shared<const GuardMessage>(Evicted{"it is silent"})});
    for (MembershipAction& more : membership_.on(MemberEnded{id, false, "silence"}, now))
      actions.push_back(std::move(more));
  }
  return actions;
}

std::optional<TimePoint> PlantedMembership::next_deadline() const {
  return membership_.next_deadline();
}

void PlantedMembership::note(const MembershipEvent& event) {
  if (const auto* ended = std::get_if<MemberEnded>(&event)) out_ |= only(ended->id);
  const auto* sent = std::get_if<MemberSent>(&event);
  if (sent == nullptr) return;
  if (std::holds_alternative<Leave>(sent->message)) out_ |= only(sent->id);
  const auto* frozen = std::get_if<Frozen>(&sent->message);
  if (frozen != nullptr && frozen->epoch == real().epoch()) frozen_ |= only(sent->id);
}

std::vector<MemberId> PlantedMembership::waited_for() const {
  std::vector<MemberId> members = real().members();
  std::erase_if(members, [&](MemberId id) { return has(frozen_ | out_, id) || real().is_evicted(id); });
  return members;
}

bool planted_rule(Planted planted, const ProgressOf& progress, std::uint32_t lane, std::uint64_t number,
                  std::span<const MemberId> participants) {
  const auto is_there = [&](MemberId id) { return progress.contains(id); };
  const auto has_lane = [&](MemberId id) { return progress.at(id).contains(lane); };
  const auto has_it = [&](MemberId id) { return has_lane(id) && progress.at(id).at(lane) >= number; };
  if (planted == Planted::kCommitsByTheGreatestProgress) {
    return std::any_of(participants.begin(), participants.end(),
                       [&](MemberId id) { return is_there(id) && has_it(id); });
  }
  if (planted == Planted::kTakesAnAbsentLaneAsInfinite) {
    return std::all_of(participants.begin(), participants.end(),
                       [&](MemberId id) { return !is_there(id) || !has_lane(id) || has_it(id); });
  }
  return is_committed(progress, lane, number, participants);
}

}  // namespace horo::sim
