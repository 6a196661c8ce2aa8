// What the simulator runs for one seed: the members, their programs, the times that steps take, and the faults.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "elastic/membership.h"
#include "horo/base/time.h"

namespace horo::sim {

// splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014). The same on every platform.
class SplitMix {
 public:
  explicit SplitMix(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next();
  std::uint64_t below(std::uint64_t count) { return next() % count; }
  std::uint64_t between(std::uint64_t least, std::uint64_t most) { return least + below(most - least + 1); }
  bool one_in(std::uint64_t count) { return below(count) == 0; }
  Duration up_to(Duration most);  // at least 1 ns

 private:
  std::uint64_t state_;
};

// A set of members: bit i is member i.
using MemberSet = std::uint32_t;
inline constexpr MemberSet only(MemberId id) {
  return MemberSet{1} << id;
}
inline constexpr bool has(MemberSet set, MemberId id) {
  return (set & only(id)) != 0;
}
std::vector<MemberId> list_of(MemberSet set);  // ascending

// The collectives of a stream, in order, which are committed together: `parts` data jobs and, with has_commit, the
// commit job as one more part. Without it the round is one data job that commits by itself.
struct RoundPlan {
  std::uint32_t parts = 1;
  bool has_commit = false;
  bool is_broadcast = false;  // its root has it complete before the others have begun
  std::uint32_t root = 0;     // position among the participants, modulo their number
  MemberSet absent = 0;       // these take no part

  std::uint32_t size() const { return parts + (has_commit ? 1 : 0); }
  bool commits(std::uint32_t part) const { return part + 1 == size(); }
};
// A process set with streams of rounds. Streams are independent of one another; their collectives share one order.
struct LanePlan {
  MemberSet set = 0;
  bool shrinks = false;  // it goes on with the members that are left; the world does, whose lane is the first
  std::vector<std::vector<RoundPlan>> streams;
};

// Steps of a member at which a fault can happen.
enum class Moment {
  kFreezes,
  kSendsFrozen,
  kTakesView,
  kConnects,
  kInstalls,
  kSubmits,
  kCompletes,
  kPasses,
  kDelivers,
  kReadies,
  kSyncs
};
inline constexpr std::uint64_t kMoments = 9;  // of a member of epoch 0
inline constexpr std::uint64_t kMomentsOfJoiners = 11;

// A pause is not seen by any part of the job. kPauseJob: of all members and all that decides.
enum class FaultKind { kCrash, kStop, kHang, kLink, kLeave, kFailedLeave, kPauseGuard, kPauseJob };
struct FaultPlan {
  FaultKind kind = FaultKind::kCrash;
  MemberId member = 0;
  MemberId other = 0;              // of a link
  Duration lasts{};                // of a stop, a hang or a pause
  bool is_lasting = false;         // a link that fails again in every epoch
  std::optional<Moment> moment{};  // the fault happens at the count-th one of the member; nothing: at the time
  int count = 1;
  Duration at{};
};

// The most that a step takes. All are multiplied by the slowness of the member.
struct Times {
  Duration guard, link, data, submit, freeze, connect;
};

// Processes that are started later: one after each end of a member, and some more.
struct JoinPlan {
  std::uint32_t most = 0;                                   // so many; 0: the job only shrinks
  std::vector<Duration> starts;                             // of those that replace no other
  Duration replaced{}, ready{}, can_grow{}, transferred{};  // the most that these steps take
  MemberSet never_can = 0;                                  // members that never say that they can grow
  MemberSet differing = 0;                                  // joiners with other terms
};

struct Scenario {
  MembershipConfig config;
  JoinPlan joins;
  std::vector<LanePlan> lanes;
  std::uint32_t depth = 0;  // rounds of a stream that a member submits before the last one is delivered
  std::vector<FaultPlan> faults;
  Times times{};
  std::vector<int> slowness;      // by member
  bool fails_alike = false;       // members that fail do so with the same failure
  bool repeats_frozen = false;    // a frozen member answers each Freeze with its Frozen once more
  bool fails_to_connect = false;  // lasting failures of links are seen while an epoch is installed, not later
  bool reads_late = false;        // a frozen member takes several messages at a time
  bool omits_idle_lanes = false;  // a Frozen does not list lanes that have nothing complete
  MemberSet failing_exits = 0;    // members whose processes end with a failure when they have left with them
  Duration exit_takes{};          // at most so long after that
  MemberId odd_member = 0;        // the one that has a planted fault of one member
};
Scenario draw_scenario(std::uint64_t seed);
// The same job, which may grow: two in three do.
Scenario draw_growing_scenario(std::uint64_t seed);

}  // namespace horo::sim
