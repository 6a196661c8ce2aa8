// PendingItems: the submissions that were reported to the coordinator and that it has not released, skipped or failed.
#pragma once

#include <map>
#include <span>
#include <vector>

#include "horo/tensors/submission_batch.h"

namespace horo {

// The engine's thread only.
class PendingItems {
 public:
  // Moves items and plans out of the batch, before its events go to the coordinator.
  void add(SubmissionBatch& batch);
  // The items of a release, in the order of its keys. A known plan costs one lookup.
  ItemList take(const Release& release);
  std::vector<Item> take(std::span<const Key> keys);

 private:
  Item take(Key key);
  void add(Item item);

  std::vector<Item> by_key_;  // work null: none
  // Complete plans. They move to by_key_ when the coordinator releases one of their tensors alone.
  std::map<PlanId, ItemList> plans_;
};

}  // namespace horo
