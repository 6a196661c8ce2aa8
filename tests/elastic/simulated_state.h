// What the simulator keeps of a member and of an epoch.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "tests/elastic/event_queue.h"
#include "tests/elastic/run_checker.h"
#include "tests/elastic/scenario.h"

namespace horo::sim {

// A collective of a lane that all its participants have submitted. Its number is its place in the lane, from 1.
struct ReleasedCollective {
  std::uint32_t stream = 0, round = 0, part = 0;
  MemberSet participants = 0;
  MemberSet begun = 0;  // on these members
};

struct EpochLane {
  std::map<std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>, MemberSet> submitted;
  std::vector<ReleasedCollective> released;
  std::vector<std::vector<std::uint64_t>> observed;  // complete: by the member that observes, and the other one
};

// What the members of an epoch share: the order of the lanes, which the coordinator gives, and the links.
struct EpochRecord {
  MemberSet members = 0;
  MemberSet connecting = 0;
  MemberSet left = 0;  // in good order, while it ran
  // A growth: members that were told of it, and those that have come to its place.
  MemberSet told = 0, at_place = 0;
  std::vector<std::vector<std::uint32_t>> place;      // round, by lane and stream
  std::vector<std::pair<MemberId, MemberId>> broken;  // links
  std::vector<EpochLane> lanes;

  bool is_broken(MemberId one, MemberId other) const;
};

struct StreamState {
  std::uint32_t round = 0, part = 0;  // the next to submit
  std::uint32_t delivered = 0;        // rounds
  bool is_waiting = false;            // for a delivery
  std::vector<Delivery> held;         // complete parts of a round
};

enum class LaneStep { kIdle, kData, kBarrier };

struct LaneState {
  bool has_failed = false;  // its set has lost a member
  bool is_stopped = false;  // in this epoch
  LaneStep step = LaneStep::kIdle;
  std::uint64_t known = 0;  // released collectives that the member knows
  std::uint64_t ended = 0;  // with the data step, or with the barrier if they commit
  std::uint64_t complete = 0;
  bool is_ending = false;  // the barrier has been passed
  std::vector<Delivery> committing;
  std::uint64_t commit_number = 0;
  MemberSet commit_participants = 0;
  std::vector<StreamState> streams;
};

// kWaiting: for its first View. A process that is not started yet has ended.
enum class MemberPhase { kRunning, kFreezing, kFrozen, kInstalling, kOut, kEnded, kWaiting };
// Of a growth: none; told; going to its place; there, or leaving the epoch there.
enum class GrowthStep { kNone, kTold, kPlaced, kThere, kLeaves };

struct MemberState {
  MemberPhase phase = MemberPhase::kInstalling;
  std::uint32_t epoch = 0;       // that it runs in, or has run in last
  std::uint32_t installing = 0;  // the epoch of its last View
  bool is_settled = true;        // it has handled the View after `epoch`
  bool is_stopped = false;
  TimePoint hangs_until{};
  std::optional<MemberId> lost;  // that its Frozen names
  std::optional<Frozen> frozen;  // the last one that it sent
  bool is_patient = false;       // a peer has left
  bool is_leaving = false;
  GrowthStep growth = GrowthStep::kNone;
  bool is_to_grow = false;  // told, in its epoch
  bool has_state = true;
  bool awaits_transfer = false;  // it runs in an epoch in which some have not the state
  std::vector<MemberId> missed;  // by the guard
  bool looks_at_missed = false;
  View view;                    // the last one
  ProgressOf done;              // of the last View or Settle
  std::vector<MemberId> ranks;  // of its epoch
  std::vector<LaneState> lanes;
  std::deque<GuardMessage> inbox;         // sent by the guard
  std::size_t arrived = 0;                // of the inbox
  TimePoint inbox_last{};                 // the last one arrives then
  std::deque<MemberMessage> outbox;       // sent to the guard
  TimePoint outbox_last{}, signs_last{};  // signs: of stops and the end
  std::vector<SimEvent> deferred;         // while it is stopped
};

}  // namespace horo::sim
