// SubmissionBatch: the submissions since the engine last took a batch. The items travel with the events, so that the
// engine and the lanes never look a tensor up in the tensor table.
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "controller/coordinator.h"
#include "horo/tensors/item.h"

namespace horo {

// Reserves capacity for `more` elements. The capacity at least doubles, so that repeated calls for a few elements stay
// linear.
template <class T>
void reserve_more(std::vector<T>& list, std::size_t more) {
  const std::size_t size = list.size() + more;
  if (list.capacity() < size) list.reserve(std::max(size, 2 * list.capacity()));
}

struct SubmissionBatch {
  std::vector<Key> undeclared;                              // precede the declarations, which may use them again
  std::vector<std::pair<Key, const TensorSpec*>> declared;  // precede the events that name them
  std::vector<Event> events;                                // in order of submission
  std::vector<Item> items;                                  // of the Submitted events, in their order
  std::vector<FilledPlan> plans;                            // of the PlanComplete events, in their order

  // After this, report(Item) does not throw `more` times, provided that the items have no splits.
  void reserve(std::size_t more) {
    reserve_more(events, more);
    reserve_more(items, more);
  }
  // lost, alone: see Submitted.
  void report(Item item, bool lost = false, bool alone = false) {
    events.emplace_back(Submitted{item.submission.key, item.submission.absent, lost, alone});
    items.push_back(std::move(item));
  }
  void report(PlanComplete complete, ItemList list) {
    const PlanId plan = complete.plan;
    events.emplace_back(std::move(complete));
    plans.push_back({plan, std::move(list)});
  }
};

}  // namespace horo
