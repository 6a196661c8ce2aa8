// StepPlans: the tensors that each process set released one by one in its current step, and the known plans made of
// them at the step end. The tensors of a dissolved plan are in no plan for kStepsApart steps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "controller/coordinator.h"
#include "controller/leader_tables.h"
#include "controller/messages.h"

namespace horo {

class StepPlans {
 public:
  static constexpr std::uint64_t kStepsApart = 100;

  // Keeps references to both.
  StepPlans(const CoordinatorConfig& config, LeaderTables& tables) : config_(config), tables_(tables) {}

  // A tensor is released. Records it if it can be in a plan: a stepwise all_reduce with an id, which all ranks of the
  // set reported, and which is in no live plan. (A rank without a part in the release may not have the id.)
  void add(Entry& entry, Version& version);
  // The tensors that were released in the set so far belong to the step that ended.
  void step_ended(std::uint32_t set) { ended_[set] = released_[set].size(); }
  // The entry's plan was dissolved.
  void keep_apart(Entry& entry) { entry.apart_until = steps_[entry.name.set] + kStepsApart; }
  void forget_set(std::uint32_t set);

  // Defines the plans of all steps that ended since the last call, and returns them for the stream. A set that a member
  // has left or joined gets no plans. A unit is in a plan completely or not at all, because plans are released
  // separately.
  std::vector<DefinePlan> define();

 private:
  struct StepTensor {
    std::uint64_t turn = 0;  // its position among all tensors that became complete
    TensorId id = 0;
  };

  std::vector<TensorId> take_step(std::uint32_t set, std::size_t released);
  void define_step(std::uint32_t set, const std::vector<TensorId>& step, std::vector<DefinePlan>& plans);
  DefinePlan define_plan(std::uint32_t set, std::vector<TensorId> tensors);

  const CoordinatorConfig& config_;
  LeaderTables& tables_;
  // All by set.
  std::map<std::uint32_t, std::vector<StepTensor>> released_;  // since the last step end
  std::map<std::uint32_t, std::size_t> ended_;                 // how many of released_ belong to the step that ended
  std::map<std::uint32_t, std::uint64_t> steps_;               // steps that have ended
};

}  // namespace horo
