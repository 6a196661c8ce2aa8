// Forgetting: ends the numbers (tensor ids) of tensors that are not in use, so that a job may use new names for ever.
// Part of the leader.
//
// When more than config.kept_tensors ids are in use, the leader chooses those that were released least recently and
// puts ForgetTensors into the stream. A tensor that a rank has reported and the leader has not released, or that is in
// a live plan or in the current step, keeps its id. Every rank forgets the ids at the same place in the stream, and
// answers with an empty report. Forgetting a tensor fails nothing: the next report of the tensor carries the whole spec
// again, also if the tensor was submitted before the rank applied ForgetTensors. A session forgets keys by itself
// (horo/tensors/name_table.h).
//
// A report by id that a rank sent before it applied ForgetTensors is legitimate. So the leader keeps the specs of
// forgotten ids until all ranks have applied the item; only then does it give these ids to other tensors. A report of a
// dissolved plan refers to ids too, so the ids of such a plan are kept until all ranks have applied the dissolution.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "controller/coordinator.h"
#include "controller/leader_tables.h"
#include "controller/messages.h"
#include "controller/stream_watermarks.h"

namespace horo {

class Forgetting {
 public:
  // Keeps references to the last two.
  Forgetting(const CoordinatorConfig& config, LeaderTables& tables, const StreamWatermarks& progress);

  // The spec of the tensor that had this id when the rank sent its last report; null if the id is not being forgotten.
  const TensorSpec* spec_of(int from, TensorId id) const;
  // Call with the items of the next message, before it is sent; may append one.
  void choose(std::vector<DownItem>& items);

 private:
  struct Dissolved {
    std::uint64_t message = 0;  // number of the message that announces it
    PlanId plan = 0;
  };

  void settle();
  std::set<TensorId> in_dissolved_plans() const;

  LeaderTables& tables_;
  const StreamWatermarks& progress_;
  const std::size_t kept_;           // ids in use above which some are forgotten
  const std::size_t step_;           // ids forgotten beyond those that are necessary, so that choices are rare
  std::size_t next_;                 // the next choice is made above this number of ids in use
  std::deque<Dissolved> dissolved_;  // plans whose dissolution some ranks have not applied
  // The ids that some ranks have not forgotten, at most one batch; no spec: the tensor's set was removed.
  std::map<TensorId, std::optional<TensorSpec>> forgotten_;
  std::uint64_t message_ = 0;  // number of the message that forgets them
};

}  // namespace horo
