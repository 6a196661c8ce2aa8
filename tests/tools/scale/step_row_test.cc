#include "tools/horo/scale/step_row.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace horo::tools {
namespace {

using testing::HasSubstr;

constexpr const char* kLine =
    R"({"rank":1,"step":7,"stream":3,"epoch":0,"begin":100,"time":30,"bars":{"input":1,"forward":2,"backward":20,)"
    R"("after_backward":null,"optimizer":3,"checkpoint":0,"between":0,"skew":4,"agreement":0,"transfer":0,"copies":0,)"
    R"("commit":0,"hand_over":0,"membership":0},"hidden_transfer":9,"hidden_copies":0,"gc":null,"cpu":25,)"
    R"("run_queue":null,"switches":0,"samples":64,"work":null,"late":{"2":4},"flags":0})";

TEST(ParseStepLine, ReadsTheFiguresOfARank) {
  const StepLine line = parse_step_line(kLine);
  ASSERT_TRUE(line.row) << line.error;
  EXPECT_EQ(line.row->rank, 1);
  EXPECT_EQ(line.row->step, 7);
  EXPECT_EQ(line.row->time, 30);
  EXPECT_EQ(line.row->bars[index_of(Bar::kBackward)], 20);
  EXPECT_EQ(line.row->bars[index_of(Bar::kAfterBackward)], std::nullopt);
  EXPECT_EQ(line.row->samples, 64);
  EXPECT_EQ(line.row->work, std::nullopt);
  EXPECT_EQ(line.row->late.at(2), 4);
}

TEST(ParseStepLine, SaysWhetherTheTimesOfTheDeviceAreKnown) {
  const std::string line(kLine);
  EXPECT_TRUE(parse_step_line(line).row->is_timed);
  const std::string notes = line.substr(0, line.rfind(",\"flags\"")) + ",\"notes\":[";
  EXPECT_TRUE(parse_step_line(notes + "\"device_time\"]}").row->is_timed);
  const StepRow row = *parse_step_line(notes + "\"too_many_waits\",\"no_device_time\"]}").row;
  EXPECT_FALSE(row.is_timed);
  EXPECT_EQ(record_of(row).flags, kNoDeviceTime);
}

TEST(RecordOf, HasWhatTheRankHasWritten) {
  StepRow row = *parse_step_line(kLine).row;
  row.late = {{0, 1}, {2, 4}, {3, 2}, {9, 3}};
  const StepRecord record = record_of(row);
  EXPECT_EQ(record.end - record.begin, std::chrono::nanoseconds(30));
  EXPECT_EQ(record.bars[index_of(Bar::kBackward)], std::chrono::nanoseconds(20));
  EXPECT_EQ(record.known & bit_of(Bar::kAfterBackward), 0u);
  EXPECT_EQ(record.gc_ns, kNotKnown);
  EXPECT_EQ(record.samples, 64);
  EXPECT_EQ(record.late_ranks, (std::array<std::int32_t, 3>{2, 9, 3}));
  EXPECT_EQ(record.late_skews[2], std::chrono::nanoseconds(2));
}

TEST(ParseStepLine, RefusesBarsThatDoNotAddUp) {
  std::string text = kLine;
  text.replace(text.find("\"time\":30"), 9, "\"time\":31");
  const StepLine line = parse_step_line(text);
  EXPECT_FALSE(line.row);
  EXPECT_THAT(line.error, HasSubstr("rank 1, step 7: the bars sum to 30 ns, the step is 31"));
}

TEST(ParseStepLine, CountsLinesThatARankHasLeftOut) {
  const StepLine line = parse_step_line(R"({"rank":1,"left_out":12})");
  EXPECT_FALSE(line.row);
  EXPECT_EQ(line.error, "");
  EXPECT_EQ(line.left_out.lines, 12);
}

TEST(ParseStepLine, RefusesWhatIsNoStep) {
  for (const std::string text : {"", "{", "[]", "7", "{}", R"({"rank":"0"})", R"({"rank":0,"step":1,"begin":0})"}) {
    EXPECT_NE(parse_step_line(text).error, "") << text;
  }
  const std::string text = kLine;
  for (std::size_t size = 0; size < text.size(); ++size) {
    EXPECT_FALSE(parse_step_line(text.substr(0, size)).row) << size;
  }
}

TEST(ParseStepLine, TakesNoRankThatIsNoNumber) {
  std::string text = kLine;
  text.replace(text.find("{\"2\":4}"), 7, R"({"<b>":4,"-1":3,"9999999999":1})");
  const StepLine line = parse_step_line(text);
  ASSERT_TRUE(line.row) << line.error;
  EXPECT_TRUE(line.row->late.empty());
}

TEST(StepsFileOf, HasTheRankInItsName) {
  EXPECT_EQ(steps_setting_of("/a"), "/a/steps.jsonl");
  EXPECT_EQ(steps_file_of("/a", 0), "/a/steps.jsonl");
  EXPECT_EQ(steps_file_of("/a", 3), "/a/steps.rank3.jsonl");
}

}  // namespace
}  // namespace horo::tools
