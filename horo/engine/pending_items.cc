#include "horo/engine/pending_items.h"

#include <algorithm>
#include <utility>

#include "horo/base/check.h"

namespace horo {

void PendingItems::add(SubmissionBatch& batch) {
  for (Item& item : batch.items) add(std::move(item));
  for (FilledPlan& plan : batch.plans) plans_.insert_or_assign(plan.plan, std::move(plan.items));
}

void PendingItems::add(Item item) {
  const Key key = item.submission.key;
  if (key >= by_key_.size()) by_key_.resize(key + std::size_t{1});
  by_key_[key] = std::move(item);
}

ItemList PendingItems::take(const Release& release) {
  if (release.known) {
    if (auto plan = plans_.extract(release.plan)) return std::move(plan.mapped());
  }
  return std::make_shared<const std::vector<Item>>(take(release.keys));
}

std::vector<Item> PendingItems::take(std::span<const Key> keys) {
  std::vector<Item> items;
  items.reserve(keys.size());
  for (const Key key : keys) items.push_back(take(key));
  return items;
}

Item PendingItems::take(Key key) {
  if (key >= by_key_.size() || !by_key_[key].work) {
    const auto has_key = [key](const Item& item) { return item.submission.key == key; };
    const auto holds_key = [&](const auto& plan) {
      return std::any_of(plan.second->begin(), plan.second->end(), has_key);
    };
    const auto plan = std::find_if(plans_.begin(), plans_.end(), holds_key);
    HORO_CHECK(plan != plans_.end());
    for (const Item& item : *plan->second) add(item);
    plans_.erase(plan);
  }
  HORO_CHECK(key < by_key_.size() && by_key_[key].work != nullptr);
  return std::exchange(by_key_[key], {});
}

}  // namespace horo
