// The numbers that callers have for works.
#include "bindings/c/work_table.h"

#include <gtest/gtest.h>

#include <set>
#include <thread>

namespace horo_c {
namespace {

std::shared_ptr<horo::Work> work(horo::Key key) {
  return std::make_shared<horo::Work>(key);
}

std::int64_t add(WorkTable& table, std::shared_ptr<horo::Work> one) {
  WorkTable::Seat seat(table);
  return seat.give(std::move(one));
}

TEST(WorkTable, FindsWhatWasAddedUntilItIsErased) {
  WorkTable table;
  std::vector<std::int64_t> numbers;
  for (horo::Key key = 0; key < 1'000; ++key) numbers.push_back(add(table, work(key)));
  for (horo::Key key = 0; key < 1'000; ++key) EXPECT_EQ(table.find(numbers[key])->key(), key);
  table.erase(numbers[500]);
  EXPECT_THROW(table.find(numbers[500]), std::invalid_argument);
  EXPECT_THROW(table.erase(numbers[500]), std::invalid_argument);
  EXPECT_EQ(table.find(numbers[501])->key(), 501u);
}

TEST(WorkTable, ManyGetTheirNumbersAtOnce) {
  WorkTable table;
  const std::int64_t before = add(table, work(7));
  std::vector<std::shared_ptr<horo::Work>> works;
  for (horo::Key key = 0; key < 300; ++key) works.push_back(work(key));
  std::vector<std::int64_t> numbers(works.size());
  WorkTable::Seats(table, works.size()).give(std::move(works), numbers.data());
  const auto found = table.find(numbers);
  for (horo::Key key = 0; key < 300; ++key) EXPECT_EQ(found[key]->key(), key);
  table.erase(numbers[17]);
  EXPECT_THROW(table.find(numbers), std::invalid_argument);
  EXPECT_EQ(table.find(before)->key(), 7u);
}

TEST(WorkTable, SeatsThatAreNotUsedAreFreeAgain) {
  WorkTable table;
  std::set<std::int64_t> places;
  for (int i = 0; i < 1'000; ++i) {
    { const WorkTable::Seats seats(table, 100); }
    const std::int64_t number = add(table, work(0));
    places.insert(number & ((1 << 24) - 1));
    table.erase(number);
  }
  EXPECT_LE(places.size(), 100u);
}

TEST(WorkTable, NumbersArePositiveAndNeverUsedTwice) {
  WorkTable table;
  std::set<std::int64_t> seen;
  for (int i = 0; i < 1'000; ++i) {
    const std::int64_t number = add(table, work(0));
    EXPECT_GT(number, 0);
    EXPECT_TRUE(seen.insert(number).second);
    table.erase(number);
  }
}

TEST(WorkTable, UnknownNumbersAreRefused) {
  WorkTable table;
  for (const std::int64_t number : {std::int64_t{0}, std::int64_t{-1}, std::int64_t{1}, INT64_MIN, INT64_MAX}) {
    EXPECT_THROW(table.find(number), std::invalid_argument) << number;
  }
  const std::int64_t number = add(table, work(0));
  EXPECT_THROW(table.find(number + 1), std::invalid_argument);
  EXPECT_THROW(table.find(-number), std::invalid_argument);
}

TEST(WorkTable, ASeatThatIsNotUsedIsFreeAgain) {
  WorkTable table;
  std::set<std::int64_t> places;
  for (int i = 0; i < 1'000; ++i) {
    { const WorkTable::Seat seat(table); }
    const std::int64_t number = add(table, work(0));
    EXPECT_EQ(table.find(number)->key(), 0u);
    places.insert(number & ((1 << 24) - 1));
    table.erase(number);
  }
  EXPECT_EQ(places.size(), 1u);
}

TEST(WorkTable, AnErasedWorkIsLetGo) {
  WorkTable table;
  const auto kept = work(0);
  const std::int64_t number = add(table, kept);
  EXPECT_EQ(kept.use_count(), 2);
  table.erase(number);
  EXPECT_EQ(kept.use_count(), 1);
}

TEST(WorkTable, ThreadsMayAddAndEraseAtOnce) {
  WorkTable table;
  const auto churn = [&table](horo::Key key) {
    for (int i = 0; i < 10'000; ++i) {
      const std::int64_t number = add(table, work(key));
      ASSERT_EQ(table.find(number)->key(), key);
      table.erase(number);
    }
  };
  std::thread other(churn, 1);
  churn(2);
  other.join();
}

}  // namespace
}  // namespace horo_c
