// What `horo run` shares with its ranks, and how a rank finds it.
#include "horo/base/run_table.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <string>

#include "horo/base/ancestors.h"

namespace horo {
namespace {

using testing::ElementsAre;
using testing::Pair;

RunTable other_map_of(const RunTable& table) {
  return RunTable::map(::fcntl(table.fd(), F_DUPFD_CLOEXEC, 0)).value();
}

TEST(RunTable, ARankReadsItsOwnPlaceAndNoSettingsOfTheUser) {
  RunTable table = RunTable::make(2);
  table.describe(1, {"HORO_RANK=1", "HORO_BUCKET_BYTES=5", "PATH=/bin", "HORO_ADDR=127.0.0.1:4000"});
  const RunTable other = other_map_of(table);
  EXPECT_EQ(other.ranks(), 2);
  EXPECT_THAT(other.variables(1), ElementsAre(Pair("HORO_ADDR", "127.0.0.1:4000"), Pair("HORO_RANK", "1")));
  EXPECT_TRUE(other.variables(0).empty());
}

TEST(RunTable, TooMuchTextIsLeftOut) {
  RunTable table = RunTable::make(1);
  table.describe(0, {"HORO_ADDR=" + std::string(100'000, 'x'), "HORO_RANK=0"});
  EXPECT_THAT(table.variables(0), ElementsAre(Pair("HORO_RANK", "0")));
  table.set_told(std::string(100'000, 'y') + "\n");
  EXPECT_FALSE(table.has_told(std::string(100'000, 'y')));
}

TEST(RunTable, TheEndOfARankIsSeenWithItsStatus) {
  RunTable table = RunTable::make(1);
  RunTable other = other_map_of(table);
  EXPECT_FALSE(other.end(0));
  table.set_end(0, 7 << 8);
  EXPECT_EQ(other.end(0), 7 << 8);
  other.set_holder(0, 42);
  other.count_start(0);
  EXPECT_EQ(table.holder(0), 42);
  EXPECT_EQ(table.starts(0), 1);
}

TEST(RunTable, ARankHasABoardOfItsOwnForItsFigures) {
  RunTable table = RunTable::make(3);
  const RunTable other = other_map_of(table);
  EXPECT_EQ(other.ranks(), 3);
  for (int rank = 0; rank < 3; ++rank) std::ranges::fill(other.board(rank), static_cast<std::byte>(rank + 1));
  table.describe(1, {"HORO_RANK=1"});
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(table.board(rank).size(), RunTable::kBoardBytes);
    for (const std::byte one : table.board(rank)) ASSERT_EQ(one, static_cast<std::byte>(rank + 1));
  }
  table.clear(1);
  EXPECT_EQ(other.board(1).front(), std::byte{0});
  EXPECT_EQ(other.board(2).front(), std::byte{3});
}

TEST(RunTable, RanksOfOtherHostsHaveBoards) {
  const RunTable table = RunTable::make(2, 3);
  const RunTable rank = other_map_of(table);
  EXPECT_EQ(rank.ranks(), 2);
  ASSERT_EQ(rank.others(), 3);
  for (int id = 0; id < 3; ++id) std::ranges::fill(rank.other_board(id), static_cast<std::byte>(id + 1));
  for (int id = 0; id < 3; ++id) EXPECT_EQ(table.other_board(id).back(), static_cast<std::byte>(id + 1));
  EXPECT_EQ(table.board(1).back(), std::byte{0});
}

TEST(RunTable, AQuestionIsAnsweredByItsNumber) {
  RunTable table = RunTable::make(2);
  RunTable rank = other_map_of(table);
  EXPECT_EQ(rank.bell(), -1);
  table.set_bell(0);
  EXPECT_EQ(rank.bell(), 0);
  EXPECT_EQ(rank.asked(), 0U);
  const std::uint32_t question = table.ask();
  EXPECT_EQ(rank.asked(), question);
  EXPECT_FALSE(table.answer_to(question));
  const std::vector<std::byte> answer(50'000, std::byte{7});
  rank.answer(question, answer);
  EXPECT_EQ(table.answer_to(question), answer);
  EXPECT_FALSE(table.answer_to(table.ask()));
  EXPECT_EQ(table.board(0).front(), std::byte{0});
}

TEST(RunTable, AStartIsToldWithItsPlaceUntilItIsOver) {
  RunTable table = RunTable::make(1);
  const TimePoint since = TimePoint{} + std::chrono::hours(3);
  EXPECT_FALSE(table.start(0));
  table.set_start(0, since, "train.py:3 main");
  EXPECT_EQ(table.start(0)->since, since);
  EXPECT_EQ(table.start(0)->site, "train.py:3 main");
  table.set_start(0, since, std::string(10'000, 'x'));
  EXPECT_EQ(table.start(0)->site.size(), 400U);
  table.set_start(0, {});
  EXPECT_FALSE(table.start(0));
  table.set_start(0, since);
  table.clear(0);
  EXPECT_FALSE(table.start(0));
}

TEST(RunTable, AnotherProcessMayTakeThePlaceOfARank) {
  RunTable table = RunTable::make(1);
  table.describe(0, {"HORO_RANK=0", "HORO_MIN_NP=1"});
  table.process_word(0) = 41;
  table.set_holder(0, 42);
  table.count_start(0);
  table.set_end(0, 9);
  table.clear(0);
  table.describe(0, {"HORO_RANK=4", "HORO_JOINS=1"});
  const RunTable other = other_map_of(table);
  EXPECT_THAT(other.variables(0), ElementsAre(Pair("HORO_JOINS", "1"), Pair("HORO_RANK", "4")));
  EXPECT_EQ(other.process(0) + other.holder(0) + other.starts(0), 0);
  EXPECT_FALSE(other.end(0));
}

TEST(RunTable, ANoticeIsForAllRanks) {
  RunTable table = RunTable::make(2);
  const RunTable other = other_map_of(table);
  EXPECT_FALSE(other.notice());
  const TimePoint until = Clock::now() + std::chrono::seconds(7);
  table.set_notice(41, until);
  ASSERT_TRUE(other.notice());
  EXPECT_EQ(other.notice()->steps, 41);
  EXPECT_EQ(other.notice()->until, until);
}

TEST(RunTable, AnotherFileIsNoTable) {
  EXPECT_FALSE(RunTable::map(::open("/dev/null", O_RDWR | O_CLOEXEC)));
  const int fd = ::memfd_create("horo-run", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  ASSERT_EQ(::ftruncate(fd, off_t{64} * 4096), 0);
  EXPECT_FALSE(RunTable::map(::fcntl(fd, F_DUPFD_CLOEXEC, 0)));  // it could shrink
  ASSERT_EQ(::fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
  EXPECT_FALSE(RunTable::map(fd));  // it has no head
}

TEST(Ancestors, ALineageBeginsHereAndEndsBeforeTheGivenProcess) {
  EXPECT_EQ(parent_of(::getpid()), ::getppid());
  EXPECT_EQ(lineage().front(), ::getpid());
  EXPECT_THAT(lineage(::getppid()), ElementsAre(::getpid()));
  EXPECT_EQ(ancestor_named("no process has this name"), 0);
}

TEST(Ancestors, AMemoryFileIsFoundByItsName) {
  const RunTable table = RunTable::make(1);
  EXPECT_EQ(memory_file_of(::getpid(), "horo-run"), table.fd());
  EXPECT_EQ(memory_file_of(::getpid(), "horo-none"), -1);
}

}  // namespace
}  // namespace horo
