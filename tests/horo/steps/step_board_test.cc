// The figures of a rank in shared memory.
#include "horo/steps/step_board.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "horo/base/error.h"
#include "horo/base/run_table.h"
#include "horo/steps/step_wire.h"

namespace horo {
namespace {

using std::chrono::nanoseconds;

struct alignas(64) Memory {
  std::array<std::byte, RunTable::kBoardBytes> bytes{};
};

StepRecord step(std::uint64_t number, std::int64_t skew = 0, std::int32_t late = -1) {
  StepRecord record;
  record.number = number;
  record.begin = TimePoint(nanoseconds(static_cast<std::int64_t>(number) * 1000));
  record.end = record.begin + nanoseconds(1000);
  record.bars[index_of(Bar::kForward)] = nanoseconds(1000 - skew);
  record.bars[index_of(Bar::kSkew)] = nanoseconds(skew);
  record.known = kKnownWithoutMarks | bit_of(Bar::kForward);
  record.samples = 4;
  record.late_ranks[0] = late;
  record.late_skews[0] = nanoseconds(skew);
  return record;
}

TEST(StepWire, AStepKeepsItsFiguresAndEndsOnTheReadersClock) {
  StepRecord sent = step(77, 123, 3);
  sent.gc_ns = 5;
  sent.run_queue_ns = 0;
  sent.work = std::int64_t{1} << 40;
  sent.switches = 9;
  sent.epoch = 2;
  sent.flags = kEstimatedWait;
  const std::vector<std::byte> bytes = encode(sent);
  EXPECT_LT(bytes.size(), 80U);
  const TimePoint end = TimePoint(std::chrono::hours(5));
  const StepRecord got = decode_step(bytes, end);
  EXPECT_EQ(got.end, end);
  EXPECT_EQ(got.end - got.begin, sent.end - sent.begin);
  EXPECT_EQ(got.bars, sent.bars);
  EXPECT_EQ(encode(got), bytes) << "cpu_ns is not known, and stays so";
  EXPECT_EQ(got.cpu_ns, kNotKnown);
  EXPECT_EQ(got.late_ranks[0], 3);
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_THROW(decode_step(std::span(bytes).first(size), end), ProtocolError);
  }
  StepRecord longest;
  for (auto& bar : longest.bars) bar = std::chrono::hours(24 * 365);
  longest.end = longest.begin + std::chrono::hours(24 * 365 * 14);
  EXPECT_LE(encode(longest).size(), kMaxStepBytes);
}

TEST(BoardSums, AStepWithoutTheTimesOfItsDeviceDoesNotHideThoseOfTheOthers) {
  const std::int64_t forward = bit_of(Bar::kForward);
  StepRecord lost = step(1);
  lost.flags = kNoDeviceTime;
  lost.known &= ~bit_of(Bar::kForward);
  BoardSums sums;
  sums.add(lost);
  EXPECT_EQ(sums.known & forward, 0);
  sums.add(step(2));
  EXPECT_EQ(sums.known & forward, forward);
  sums.add(lost);
  EXPECT_EQ(sums.known & forward, forward);
  StepRecord without_marks = step(3);
  without_marks.known = kKnownWithoutMarks;
  sums.add(without_marks);
  EXPECT_EQ(sums.known & forward, 0);
  EXPECT_EQ(sums.steps, 4);
}

TEST(StepBoard, AReaderHasTheSumsAndTheLastSteps) {
  const auto memory = std::make_unique<Memory>();
  const StepBoard reader(memory->bytes);
  EXPECT_FALSE(reader.read());
  StepBoard writer(memory->bytes);
  for (std::uint64_t number = 1; number <= 200; ++number) {
    writer.write(2, 4, step(number, number % 2 == 0 ? 10 : 0, 3));
    const auto view = reader.read();
    ASSERT_TRUE(view);
    EXPECT_EQ(view->sums.steps, static_cast<std::int64_t>(number));
    EXPECT_EQ(view->last.size(), std::min<std::size_t>(number, StepBoard::kLast));
    EXPECT_EQ(view->last.back().number, number);
  }
  const StepBoard::View view = *reader.read();
  EXPECT_EQ(view.last.front().number, 200 - StepBoard::kLast + 1);
  EXPECT_EQ(view.sums.rank, 2);
  EXPECT_EQ(view.sums.size, 4);
  EXPECT_EQ(view.sums.wall, 200'000);
  EXPECT_EQ(view.sums.bars[index_of(Bar::kSkew)], 1000);
  EXPECT_EQ(view.sums.bars[index_of(Bar::kForward)], 199'000);
  EXPECT_EQ(view.sums.samples, 800);
  EXPECT_EQ(view.sums.late[0].rank, 3);
  EXPECT_EQ(view.sums.late[0].skew, 1000);
  EXPECT_EQ(view.sums.late[0].steps, 100);
  EXPECT_EQ(view.sums.late[1].skew, 0);
}

TEST(StepBoard, AStepCountsWhenItEndsAndIsInTheSumsWhenItsTimesAreKnown) {
  const auto memory = std::make_unique<Memory>();
  StepBoard writer(memory->bytes);
  writer.end_step();
  writer.end_step();
  writer.write(0, 1, step(1));
  const StepBoard reader(memory->bytes);
  EXPECT_EQ(reader.ended(), 2);
  EXPECT_EQ(reader.read()->ended, 2);
  EXPECT_EQ(reader.read()->sums.steps, 1);
}

TEST(StepBoard, ABarThatIsNotKnownInOneStepIsNotKnownInTheSum) {
  BoardSums sums;
  sums.add(step(1));
  EXPECT_NE(sums.known & bit_of(Bar::kForward), 0);
  StepRecord unmarked = step(2);
  unmarked.known = kKnownWithoutMarks;
  sums.add(unmarked);
  EXPECT_EQ(sums.known, kKnownWithoutMarks);
}

TEST(StepBoard, TheRanksWithMostSkewAreKept) {
  BoardSums sums;
  for (int round = 0; round < 3; ++round) {
    for (std::int32_t rank = 0; rank < 100; ++rank) sums.add(step(1, rank == 77 ? 500 : 1 + rank % 7, rank));
  }
  EXPECT_EQ(sums.late[0].rank, 77);
  EXPECT_EQ(sums.late[0].skew, 1500);
  for (std::size_t i = 1; i < BoardSums::kLateRanks; ++i) EXPECT_LE(sums.late[i].skew, sums.late[i - 1].skew);
}

// What a reader sees is what was written at one time.
TEST(StepBoard, AReaderBesideAWriterSeesWholeSteps) {
  const auto memory = std::make_unique<Memory>();
  StepBoard writer(memory->bytes);
  std::atomic<bool> is_over = false;
  std::jthread writing([&] {
    for (std::uint64_t number = 1; !is_over; ++number) writer.write(0, 1, step(number));
  });
  const StepBoard reader(memory->bytes);
  for (int i = 0; i < 2'000; ++i) {
    const auto view = reader.read();
    if (!view) continue;
    ASSERT_EQ(view->sums.wall, view->sums.steps * 1000);
    for (const StepRecord& one : view->last) ASSERT_EQ(one.begin.time_since_epoch().count(), one.number * 1000);
  }
  is_over = true;
}

TEST(StepBoard, ADeadWriterLeavesTheSumsBefore) {
  const auto memory = std::make_unique<Memory>();
  StepBoard writer(memory->bytes);
  for (std::uint64_t number = 1; number <= 3; ++number) writer.write(0, 1, step(number));
  for (std::byte* at = memory->bytes.data(); at < memory->bytes.data() + StepBoard::kBytes; at += 8) {
    // Each word in turn is an odd number, as if a copy were being written, or any other word were damaged.
    std::uint64_t saved = 0;
    std::memcpy(&saved, at, 8);
    const std::uint64_t odd = saved | 1;
    std::memcpy(at, &odd, 8);
    if (const auto view = StepBoard(memory->bytes).read()) {
      EXPECT_LE(view->last.size(), 3U);
    }
    std::memcpy(at, &saved, 8);
  }
  EXPECT_EQ(StepBoard(memory->bytes).read()->sums.steps, 3);
}

}  // namespace
}  // namespace horo
