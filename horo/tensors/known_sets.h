// KnownSets: the process sets of a session, their members, and the requests of this rank in flight. Every rank of the
// world holds every set, because a set begins and ends at one place in the stream.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "controller/set_table.h"
#include "horo/base/config.h"
#include "horo/base/failure.h"
#include "horo/base/tensor_spec.h"
#include "horo/tensors/join_state.h"

namespace horo {

// The world of the next epoch.
struct RankChange {
  std::uint32_t epoch = 0;  // that begins
  int rank = 0;             // of this process
  int size = 1;
  std::vector<int> rank_of;  // by rank of the last epoch; the order stays. -1: lost
  std::string reason;        // why the last epoch ended
  bool has_joined = false;   // the world has ranks that the last epoch did not have
  // The same for the sets that go on without some of their members: numbers in the set, by number in the last epoch.
  std::map<std::uint32_t, std::vector<int>> in_sets = {};
};

struct SetInfo {
  std::uint32_t number = 0;  // 0 is the world; numbers are not reused
  std::string name;
  std::vector<int> ranks;   // of the world, ascending
  int rank = -1;            // of this rank inside the set; -1: it is not a member
  bool shrinks = false;     // in an elastic job it goes on when it has lost members, as the world does
  bool by_members = false;  // its members alone add and remove it
  int size() const { return static_cast<int>(ranks.size()); }
};

// The set's name for messages: "process set 'evens'", or "process set 2" if that is its name, or "the world".
std::string describe(const SetInfo& set);

// Has no lock of its own: the tensor table calls it under its mutex.
class KnownSets {
 public:
  explicit KnownSets(const Config& config);  // only the world

  // Throws std::invalid_argument if the set does not exist or was removed, or PeerLost if it has lost a member, and
  // cannot go on.
  const SetInfo& find(std::uint32_t set) const;
  // The same; also throws if this rank is not a member.
  const SetInfo& find_mine(std::uint32_t set) const;

  // ---- For actions of the coordinator.

  void add(SetInfo set);  // its rank is set here
  void remove(std::uint32_t set);
  // Sets that lose a member cannot be used any more, except for the world and sets that shrink. Fills change.in_sets.
  void begin_epoch(RankChange& change);
  // The sets of the others, for a rank that has made no call. members: MemberIds, by rank of the world.
  void join(int rank, const JoinState& state, std::span<const std::uint32_t> members);
  // What a rank that joins now gets. Unnamed calls are not counted here.
  JoinState for_joiners(std::span<const std::uint32_t> members) const;
  bool is_lost(std::uint32_t set) const { return lost_.contains(set); }

  // ---- For requests of callers: specs of kind kAddSet, kRemoveSet or kJoin. Other kinds have no effect.

  // Fills in what members match a request of theirs by.
  void complete_request(TensorSpec& spec) const;
  // Throws std::invalid_argument for an invalid request: no ranks, ranks out of range, the ranks or the name of another
  // set, too many sets, no such set, the same request in flight, or the end of a set that this rank does not know. In
  // an elastic job the leader compares the ranks with those of other sets: ranks make a call in different epochs, in
  // which these sets may differ. Of sets of members, ranks know different ones at a call, so the leader counts them and
  // compares their names.
  void check_request(const TensorSpec& spec) const;
  void add_request(const TensorSpec& spec);
  void end_request(const TensorSpec& spec);

  // This rank has joined the set, and some member has not.
  bool has_joined(std::uint32_t set) const { return joined_.contains(set); }

 private:
  void check_new(const std::string& name, const std::vector<std::int64_t>& ranks) const;
  void check_ranks(const std::string& what, const std::vector<std::int64_t>& ranks) const;
  void check_of_members(const std::string& name, const std::vector<std::int64_t>& ranks) const;
  void place(SetInfo& set) const;
  SetInfo whole_world() const;
  bool knows(std::uint32_t set) const { return first_sets_[static_cast<std::size_t>(rank_)] <= set; }

  int rank_;
  int world_size_;
  const std::size_t most_;
  const bool is_elastic_;
  std::map<std::uint32_t, SetInfo> sets_;
  FirstSets first_sets_;
  std::uint32_t last_ = 0;                         // highest number so far
  std::set<std::vector<std::int64_t>> requested_;  // ranks of sets that are being added
  std::set<std::uint32_t> leaving_;                // sets that are being removed
  std::set<std::uint32_t> joined_;
  std::map<std::uint32_t, FailurePtr> lost_;  // sets that have lost a member, and cannot go on
};

}  // namespace horo
