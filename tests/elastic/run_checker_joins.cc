// The invariants of joins: which processes join and where, and that one that is in no View delays and moves none.
#include <algorithm>

#include "tests/elastic/run_checker.h"

namespace horo::sim {

// ---- What decides hears.

void RunChecker::begin_hearing(std::uint32_t epoch) {
  if (heard_.epoch == epoch) return;
  heard_.epoch = epoch;
  heard_.installed = heard_.frozen = heard_.at_border = heard_.failed = 0;
  heard_.has_failed_exit = false;
  heard_.border.reset();
}

void RunChecker::hear(const MembershipEvent& event, std::uint32_t epoch, TimePoint now) {
  begin_hearing(epoch);
  if (const auto* one = std::get_if<MemberEnded>(&event)) heard_.out |= only(one->id);
  if (const auto* one = std::get_if<MemberStopped>(&event)) heard_.stopped |= only(one->id);
  if (const auto* one = std::get_if<MemberContinued>(&event)) heard_.stopped &= ~only(one->id);
  const auto* sent = std::get_if<MemberSent>(&event);
  const auto* leave = sent != nullptr ? std::get_if<Leave>(&sent->message) : nullptr;
  if (leave != nullptr && !leave->failure.empty()) heard_.failed |= only(sent->id);
  if (sent != nullptr && !has(heard_.out | evicted_, sent->id)) {
    hear(sent->id, sent->message, now);
  } else if (leave != nullptr && leave->failed) {
    heard_.has_failed_exit = true;
  }
  waiting_ = count_waiting();
}

void RunChecker::hear(MemberId id, const MemberMessage& message, TimePoint now) {
  if (const auto* frozen = std::get_if<Frozen>(&message)) hear_frozen(id, *frozen, now);
  if (const auto* one = std::get_if<Installed>(&message); one != nullptr && one->epoch == heard_.epoch)
    heard_.installed |= only(id);
  if (std::holds_alternative<Leave>(message)) heard_.out |= only(id);
  if (std::holds_alternative<CanGrow>(message)) heard_.can_grow |= only(id);
  if (std::holds_alternative<Ready>(message) && !has(scenario_.joins.differing, id)) heard_.ready |= only(id);
  if (std::holds_alternative<Synced>(message)) heard_.with_state |= only(id);
}

void RunChecker::hear_frozen(MemberId id, const Frozen& frozen, TimePoint now) {
  if (frozen.epoch != heard_.epoch || has(heard_.frozen, id)) return;
  heard_.frozen |= only(id);
  if (frozen.at_border) {
    heard_.at_border |= only(id);
    borders_.insert(frozen.epoch);
    if (!heard_.border) heard_.border = now;
  }
  const bool is_missed = frozen.lost && has(here(), *frozen.lost) && !has(heard_.with_state, *frozen.lost);
  if (is_missed && has(heard_.with_state, id)) heard_.missed |= only(*frozen.lost);
}

bool RunChecker::has_border(std::uint32_t epoch) const {
  return borders_.contains(epoch);
}

MemberSet RunChecker::count_waiting() const {
  const MemberSet inside = here() & ~heard_.with_state;
  const MemberSet founders = only(static_cast<MemberId>(scenario_.config.members)) - 1;
  if ((here() & founders & ~heard_.can_grow) != 0) return inside;
  return inside | (heard_.ready & ~heard_.out & ~heard_.stopped & ~heard_.refused & ~had_epochs_);
}

void RunChecker::sync(MemberId member, const std::vector<std::uint32_t>& rounds) {
  state_ |= only(member);
  starts_[member] = rounds;
  next_[member].front() = rounds;
}

// ---- What decides does.

// Once all members of the epoch are frozen or out, nothing else is waited for.
void RunChecker::end_turn(bool is_parked) {
  if (is_parked || (view_ ? view_->epoch : 0) != heard_.epoch || here() == 0) return;
  if ((here() & ~heard_.frozen) != 0 || (members_ & heard_.failed) != 0) return;
  violate("all members of epoch " + std::to_string(heard_.epoch) + " are frozen or out, and nothing is decided");
}

// Only for a reason: a member is out or has frozen, or the members do not come to a border.
void RunChecker::send(MemberId member, const Freeze& freeze, TimePoint now) {
  begin_hearing(freeze.epoch);
  const bool is_missed = (members_ & (heard_.out | evicted_)) != 0 || (heard_.frozen & ~heard_.at_border) != 0;
  const bool is_late = heard_.border && now >= *heard_.border + scenario_.config.border_patience;
  if (is_missed || is_late || heard_.has_failed_exit) return;
  violate("member " + std::to_string(member) + " is asked to freeze in epoch " + std::to_string(freeze.epoch) +
          " without a reason");
}

void RunChecker::send(const Grow& grow, std::uint32_t epoch) {
  if (grow.joiners.empty()) return;
  begin_hearing(epoch);
  const std::string name = "the members of epoch " + std::to_string(epoch) + " are told to grow ";
  const MemberSet founders = only(static_cast<MemberId>(scenario_.config.members)) - 1;
  if ((here() & ~heard_.installed) != 0) violate(name + "before all run in it");
  if ((here() & founders & ~heard_.can_grow) != 0) violate(name + "and not all can");
  if ((here() & ~heard_.with_state) != 0) violate(name + "and not all have the state");
  if ((here() & heard_.frozen) != 0) violate(name + "while it ends");
  for (const MemberId id : grow.joiners) {
    if (!has(heard_.ready, id) || has(heard_.out | heard_.stopped | heard_.refused | had_epochs_, id))
      violate(name + "by " + std::to_string(id) + ", which is not ready");
  }
  if (list_of(here()).size() + grow.joiners.size() > static_cast<std::size_t>(scenario_.config.max_members))
    violate(name + "by too many");
}

void RunChecker::check_joins(const View& view, std::uint32_t last_epoch) {
  const std::string name = "the View of epoch " + std::to_string(view.epoch);
  std::vector<MemberId> survivors;
  for (const MemberId id : view.members) {
    if (std::find(view.joined.begin(), view.joined.end(), id) == view.joined.end()) survivors.push_back(id);
  }
  const bool are_there = std::all_of(survivors.begin(), survivors.end(), [&](MemberId id) {
    return at_border_.contains({id, last_epoch});
  });
  if (view.at_border != are_there) violate(name + " is wrong about the border");
  if (view.at_border) check_place(survivors);
  if (!view.joined.empty() && !view.at_border) violate(name + " adds members elsewhere than at a border");
  for (const MemberId id : view.joined) {
    const bool is_member = std::find(view.members.begin(), view.members.end(), id) != view.members.end();
    if (has(had_epochs_, id)) violate(name + " adds " + std::to_string(id) + ", which was in an epoch before");
    if (!is_member || !has(heard_.ready, id)) violate(name + " adds " + std::to_string(id) + ", which is not ready");
    if (has(heard_.out | heard_.refused, id)) violate(name + " adds " + std::to_string(id) + ", which is out");
  }
  if (view.members.empty()) return;
  if (!has(heard_.with_state, view.members.front())) violate(name + " has a rank 0 without the state");
  for (const MemberId id : view.members) {
    if (has(heard_.missed, id)) violate(name + " has the joiner " + std::to_string(id) + ", which a member has missed");
  }
}

// All have delivered the same rounds, but for those in which a member has no part.
void RunChecker::check_place(const std::vector<MemberId>& members) {
  for (std::uint32_t lane = 0; lane < scenario_.lanes.size(); ++lane) {
    if (failed_.contains(lane)) continue;
    for (std::size_t i = 0; i < scenario_.lanes[lane].streams.size(); ++i) {
      const auto& stream = scenario_.lanes[lane].streams[i];
      std::uint32_t place = 0;
      for (const MemberId id : members) place = std::max(place, next_[id][lane][i]);
      for (const MemberId id : members) {
        for (std::uint32_t round = next_[id][lane][i]; round < place; ++round) {
          if (takes_part(id, lane, stream[round])) violate("member " + std::to_string(id) + " is not at the border");
        }
      }
    }
  }
}

}  // namespace horo::sim
