// ReleaseQueue: the tensors and plans that are complete and not released. Decides which of them are released now, and
// in which order: by priority, and among equal priorities in the order in which they became complete. The others wait
// until the lanes have finished enough of the released data (flow.h). A waiting tensor or plan stays complete: it may
// be removed again by a failure or a dissolved plan. No tensor waits without bound: after config.most_passed younger
// ones of its set were released before it, it has the highest priority.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string_view>
#include <vector>

#include "controller/coordinator.h"
#include "controller/flow.h"
#include "controller/leader_tables.h"

namespace horo {

class ReleaseQueue {
 public:
  // Keeps references to both.
  ReleaseQueue(const CoordinatorConfig& config, const LeaderTables& tables) : config_(config), tables_(tables) {}

  // A complete tensor, with the priority that its ranks agree on (or that of its unit). Sets entry.turn and
  // entry.priority.
  void add(Entry& entry, std::int32_t priority);
  void add(PlanId plan) { complete_.push_back({plan}); }
  // No effect if it is not queued.
  void remove(EntryOrPlan what);

  // Removes and returns the tensors and plans to release now, in this order. A unit is returned as a whole, its tensors
  // side by side.
  std::vector<EntryOrPlan> take();

  // Whether the first participating rank of a released collective must report that it has finished.
  bool needs_done(std::uint32_t set, CollectiveKind kind) const;
  // Collectives with this number of tensors have finished.
  void finished(std::uint32_t set, std::size_t tensors) { flows_[set].finished(tensors); }
  // From now on no tensor waits in the sets of this rank, because it may be the rank that reports finished collectives.
  void rank_left(int rank);
  // Forgets the flow of a removed set. Its queued entries must have been released or removed.
  void forget_set(std::uint32_t set) { flows_.erase(set); }

 private:
  struct Complete {
    EntryOrPlan what;
    std::size_t passed = 0;  // tensors and plans of its set that became complete later and were released before it
  };
  struct Candidate {
    std::size_t index = 0;  // in complete_
    std::uint32_t set = 0;
    std::int32_t priority = 0;
    std::size_t tensors = 0;  // that run on the set's lane
    std::size_t bytes = 0;    // of those
    std::string_view unit = {};
  };

  Candidate candidate(std::size_t index) const;
  std::set<std::uint32_t> ending_sets() const;
  std::vector<bool> choose(std::vector<Candidate>& candidates);
  void count_passed(const std::vector<Candidate>& candidates, const std::vector<bool>& goes);

  const CoordinatorConfig& config_;
  const LeaderTables& tables_;
  std::vector<Complete> complete_;       // in the order in which they became complete
  std::uint64_t turns_ = 0;              // tensors that became complete so far
  std::map<std::uint32_t, Flow> flows_;  // by set
};

}  // namespace horo
