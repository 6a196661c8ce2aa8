#include "controller/ready_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "horo/base/error.h"
#include "tests/controller/simulator.h"

namespace horo {
namespace {

using testing::ElementsAre;

constexpr TimePoint kReportTime = TimePoint{} + std::chrono::seconds(5);

TEST(RankSet, CountsEachRankOnce) {
  RankSet set(130);
  EXPECT_TRUE(set.insert(129));
  EXPECT_FALSE(set.insert(129));
  EXPECT_TRUE(set.insert(0));
  EXPECT_THAT(set.ranks(), ElementsAre(0, 129));
  EXPECT_EQ(set.missing().size(), 128U);
  EXPECT_FALSE(set.full());
  set.clear();
  EXPECT_TRUE(set.empty() && !set.contains(0));
}

TEST(RankSet, ComparesWithOthersOfItsWorld) {
  const RankSet some(130, {1, 64, 129});
  RankSet more(130, {1, 2, 64, 129});
  EXPECT_TRUE(more.covers(some) && !some.covers(more));
  EXPECT_THAT(more.without(some).ranks(), ElementsAre(2));
  EXPECT_TRUE(some.meets(more) && !some.meets(RankSet(130, {2, 3})));
  more.insert(RankSet(130, {3, 64}));
  EXPECT_EQ(more, RankSet(130, {1, 2, 3, 64, 129}));
}

TEST(RankSet, IsFullWithEveryRank) {
  RankSet set(64);
  for (int rank = 0; rank < 64; ++rank) set.insert(rank);
  EXPECT_TRUE(set.full() && set.missing().empty());
}

TEST(ReadyTable, AgreesIfAllRanksReportTheSameSpec) {
  ReadyTable table(2, 100);
  const VersionRef ref = table.find_or_add(gradient("x"));
  table.mark(ref, 0, false, kReportTime);
  table.mark(table.find_or_add(gradient("x")), 1, true, kReportTime);
  EXPECT_NE(ReadyTable::agreed(*ref.entry), nullptr);
  EXPECT_THAT(ref.entry->absent.ranks(), ElementsAre(1));
  EXPECT_EQ(ref.entry->since[1], kReportTime);
}

TEST(ReadyTable, HasTheSpecsAndRanksOfADisagreement) {
  ReadyTable table(3, 100);
  for (int rank = 0; rank < 3; ++rank)
    table.mark(table.find_or_add(gradient("x", {rank / 2 + 1})), rank, false, kReportTime);
  EXPECT_EQ(ReadyTable::agreed(*table.find_or_add(gradient("x", {1})).entry), nullptr);
  const std::vector<SpecReport> reports = ReadyTable::reports(*table.find_or_add(gradient("x", {1})).entry);
  ASSERT_EQ(reports.size(), 2U);
  EXPECT_THAT(reports[0].ranks, ElementsAre(0, 1));
  EXPECT_THAT(reports[1].ranks, ElementsAre(2));
}

TEST(ReadyTable, ASecondReportOfARankIsRefusedByName) {
  ReadyTable table(2, 100);
  table.mark(table.find_or_add(gradient("x")), 1, false, kReportTime);
  try {
    table.mark(table.find_or_add(gradient("x")), 1, false, kReportTime);
    FAIL() << "a report too many was taken";
  } catch (const ProtocolError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("rank 1 reported tensor 'x' twice"));
  }
}

// One instance of the tensor in a world of one rank.
std::optional<TensorId> round_of(ReadyTable& table, const TensorSpec& spec) {
  const VersionRef version = table.find_or_add(spec);
  table.mark(version, 0, false, kReportTime);
  const TensorRef ref = table.refer(*version.entry, *ReadyTable::agreed(*version.entry));
  table.finish(*version.entry);
  return ref.id;
}

TEST(ReadyTable, EachNameAndSpecKeepsItsId) {
  ReadyTable table(1, 100);
  EXPECT_EQ(round_of(table, gradient("x", {1})), 0U);
  EXPECT_EQ(round_of(table, gradient("x", {2})), 1U);
  EXPECT_EQ(round_of(table, gradient("x", {1})), 0U);
  EXPECT_EQ(table.version_of(TensorId{1})->entry, table.version_of(TensorId{0})->entry);
  EXPECT_FALSE(table.version_of(TensorId{2}));
}

TEST(ReadyTable, AnEntryIsCompleteWithTheRanksItNeedsExceptTheExcused) {
  ReadyTable table(3, 100);
  Entry& entry = *table.find_or_add(gradient("x")).entry;
  entry.needs = RankSet(3, {0, 2});
  const RankSet excused(3, {1, 2});
  EXPECT_FALSE(ReadyTable::complete(entry, &excused));
  table.mark(table.find_or_add(gradient("x")), 0, false, kReportTime);
  EXPECT_TRUE(ReadyTable::complete(entry, &excused));
  EXPECT_FALSE(ReadyTable::complete(entry, nullptr));
  table.mark(table.find_or_add(gradient("x")), 2, false, kReportTime);
  EXPECT_TRUE(ReadyTable::complete(entry, nullptr));
}

TEST(ReadyTable, TheIdsOfAForgottenSetAreNotReused) {
  ReadyTable table(1, 100);
  TensorSpec of_set = gradient("x");
  of_set.set = 1;
  EXPECT_EQ(round_of(table, gradient("x")), 0U);
  EXPECT_EQ(round_of(table, of_set), 1U);
  EXPECT_EQ(table.of_set(1).size(), 1U);
  table.forget_set(1);
  EXPECT_TRUE(table.of_set(1).empty());
  EXPECT_EQ(table.version_of(TensorId{1})->entry, nullptr);
  EXPECT_EQ(round_of(table, gradient("y")), 2U);
}

TEST(ReadyTable, AnUnnamedTensorIsForgotten) {
  ReadyTable table(1, 100);
  TensorSpec spec = gradient("all_reduce#0");
  spec.once = true;
  EXPECT_FALSE(round_of(table, spec));
  EXPECT_TRUE(table.entries().empty());
}

TEST(ReadyTable, GivesNoMoreIdsThanItsLimit) {
  ReadyTable table(1, 1);
  EXPECT_TRUE(round_of(table, gradient("x")));
  EXPECT_FALSE(round_of(table, gradient("y")));
  EXPECT_EQ(table.entries().size(), 1U);
}

}  // namespace
}  // namespace horo
