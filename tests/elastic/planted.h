// Faults that are planted in the model to show that the simulator finds them: each breaks one rule of docs/protocol.md.
#pragma once

#include <optional>
#include <set>
#include <span>
#include <vector>

#include "elastic/awake_membership.h"
#include "elastic/membership.h"
#include "tests/elastic/scenario.h"

namespace horo::sim {

enum class Planted {
  kNone,
  // Of the guard.
  kDecidesBeforeAllAreFrozen,
  kTakesFrozenOfAnOldEpoch,
  kSendsTwoViewsOfAnEpoch,
  kEvictsByCount,
  kGivesUpWithoutNeed,  // a silent member for which no other waits
  kCountsItsPauses,     // as silence of the members
  kForgetsAFailedExit,  // of a member that it has counted as one that left
  // Of the guard, one for each rule of joins.
  kWaitsForAJoiner,         // that is started and not ready, before it decides
  kGrowsBeforeAllCan,       // members have not said that they can
  kAddsJoinersAnywhere,     // and not at a border only
  kFreezesAtABorder,        // all others, when the first member is there
  kForgetsWhoHasTheState,   // a member has it when it is in a View
  kKeepsAMissedJoiner,      // that has not the state
  kForgetsJoinersIfParked,  // that get ready then
  kGivesAnIdAgain,          // that of a member which is out
  // Of all members.
  kCommitsByTheGreatestProgress,
  kTakesAnAbsentLaneAsInfinite,
  kDeliversBeforeTheBarrier,
  kDeliversAfterFrozen,
  kCommitsThePartsOfARoundAlone,
  kIgnoresAFreezeDuringInstall,
  kNamesWhatItWasTold,         // a member names the lost one of the abort that a peer sent, as if it had seen it
  kNamesNoneInInstall,         // a member does not name the one that it cannot connect to
  kNamesNoneOfACut,            // the same, if the network between them is cut
  kForgetsAFreezeBehindAView,  // a member drops what it received after a View
  // Of one member.
  kForgetsALaneInFrozen,
  kNumbersRanksInAnotherOrder,
  kSubmitsADeliveredCollectiveAgain,
};

// JobMembership, or a guard around it with a planted fault.
class PlantedMembership {
 public:
  PlantedMembership(const MembershipConfig& config, Planted planted)
      : membership_(config), planted_(planted), first_(static_cast<MemberId>(config.members)) {}

  std::vector<MembershipAction> on(MembershipEvent event, TimePoint now);
  const JobMembership& real() const { return membership_.real(); }
  std::optional<TimePoint> next_deadline() const;

 private:
  void add(std::vector<MembershipAction>& actions, const MembershipEvent& event, TimePoint now);
  bool twist(MembershipEvent& event);
  void add_of_joins(std::vector<MembershipAction>& actions, const MembershipEvent& event, TimePoint now);
  void give_id_again(SendToMember& sent);
  bool has_joiner(const std::string& word) const;  // in this state
  std::vector<MembershipAction> decide(const MembershipEvent& event, TimePoint now);
  void note(const MembershipEvent& event);
  std::vector<MemberId> waited_for() const;

  AwakeMembership membership_;
  const Planted planted_;
  const MemberId first_;  // of the processes that are started later
  std::uint32_t epoch_ = 0;
  MemberSet frozen_ = 0;  // in the epoch
  MemberSet out_ = 0;
  TimePoint last_turn_{};
  std::set<MemberId> missed_;
  std::vector<MembershipEvent> held_;
};

// is_committed(), or a rule with a planted fault.
bool planted_rule(Planted planted, const ProgressOf& progress, std::uint32_t lane, std::uint64_t number,
                  std::span<const MemberId> participants);

}  // namespace horo::sim
