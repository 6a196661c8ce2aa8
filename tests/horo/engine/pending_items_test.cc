#include "horo/engine/pending_items.h"

#include <gtest/gtest.h>

namespace horo {
namespace {

Item item_of(Key key) {
  Item item;
  item.submission.key = key;
  item.work = std::make_shared<Work>(key);
  return item;
}

ItemList list_of(const std::vector<Key>& keys) {
  const auto items = std::make_shared<std::vector<Item>>();
  for (const Key key : keys) items->push_back(item_of(key));
  return items;
}

std::vector<Key> keys_of(std::span<const Item> items) {
  std::vector<Key> keys;
  for (const Item& item : items) keys.push_back(item.work->key());
  return keys;
}

Release release_of(std::vector<Key> keys, PlanId plan) {
  Release release;
  release.keys = std::move(keys);
  release.known = plan != 0;
  release.plan = plan;
  return release;
}

TEST(PendingItems, SingleItemsAreTakenInTheOrderOfTheRelease) {
  PendingItems pending;
  SubmissionBatch batch;
  for (const Key key : {3U, 1U, 2U}) batch.report(item_of(key));
  pending.add(batch);
  EXPECT_EQ(keys_of(*pending.take(release_of({1, 3}, 0))), (std::vector<Key>{1, 3}));
  const std::vector<Key> rest = {2};
  EXPECT_EQ(keys_of(pending.take(rest)), rest);
}

TEST(PendingItems, AReleasedPlanIsTheListThatWasSubmitted) {
  PendingItems pending;
  SubmissionBatch batch;
  const ItemList plan = list_of({5, 4});
  batch.report(PlanComplete{7, {}}, plan);
  pending.add(batch);
  EXPECT_EQ(pending.take(release_of({5, 4}, 7)), plan);
}

TEST(PendingItems, ACompletePlanMayBeReleasedInParts) {
  PendingItems pending;
  SubmissionBatch batch;
  batch.report(PlanComplete{1, {}}, list_of({0, 1, 2}));
  batch.report(PlanComplete{2, {}}, list_of({3, 4}));
  batch.report(item_of(9));
  pending.add(batch);
  EXPECT_EQ(keys_of(*pending.take(release_of({2, 0, 9}, 0))), (std::vector<Key>{2, 0, 9}));
  EXPECT_EQ(keys_of(*pending.take(release_of({3, 4}, 2))), (std::vector<Key>{3, 4}));
  const std::vector<Key> rest = {1};
  EXPECT_EQ(keys_of(pending.take(rest)), rest);
}

}  // namespace
}  // namespace horo
