#include "ring/schedule/schedule_json.h"

#include <gtest/gtest.h>

#include <stdexcept>

#include "ring/schedule/schedule_check.h"

namespace horo {
namespace {

GivenSchedules made(const NamedMaker& maker, int size) {
  GivenSchedules given;
  given.shape.kind = maker.kind;
  given.shape.size = size;
  for (int member = 0; member < size; ++member) given.schedules.push_back(maker.make(given.shape, member));
  return given;
}

std::string refusal(const std::string& text) {
  try {
    schedules_from_json(text, "mine.json");
    return "";
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
}

TEST(ScheduleJson, EveryScheduleSurvivesWritingAndReading) {
  for (const NamedMaker& maker : all_schedule_makers()) {
    for (const int size : {1, 2, 5}) {
      const std::string text = to_json(made(maker, size));
      EXPECT_EQ(to_json(schedules_from_json(text, "mine.json")), text) << maker.name;
    }
  }
}

TEST(ScheduleJson, AWrongScheduleIsRefusedAndTheStepNamed) {
  std::string text = to_json(made(all_schedule_makers()[1], 2));
  EXPECT_EQ(refusal(text), "");
  const std::string right = "\"tree\":[0,2,-1]";
  text.replace(text.find(right), right.size(), "\"tree\":[0,0,-1]");
  EXPECT_EQ(refusal(text),
            "mine.json: schedule direct, member 0, round 0: adds member 0's contribution to chunk 0 twice");
}

TEST(ScheduleJson, AMissingOrMistypedValueIsNamedWithItsPath) {
  const auto with = [](const std::string& round) {
    return R"({"name":"x","kind":"all_reduce","chunks":1,"members":[{"rounds":[)" + round + "]}]}";
  };
  EXPECT_EQ(refusal("{"), "mine.json: expected JSON");
  EXPECT_EQ(refusal("[]"), "mine.json: expected an object");
  EXPECT_EQ(refusal("{}"), "mine.json: has no \"name\"");
  EXPECT_EQ(refusal(R"({"name":"x","kind":"all"})"), "mine.json, kind: \"all\" is not a valid name here");
  EXPECT_EQ(refusal(with(R"({"send":[{"area":0}]})")), "mine.json, members 0, rounds 0, send 0: has no \"peer\"");
  EXPECT_EQ(refusal(with(R"({"send":[{"peer":"a"}]})")),
            "mine.json, members 0, rounds 0, send 0, peer: expected a whole number");
  EXPECT_EQ(refusal(with(R"({"combine":[{"area":1,"first":0,"tree":[0]}]})")), "");
}

TEST(ScheduleJson, AFileThatCannotBeReadIsNamed) {
  EXPECT_THROW(read_schedules("/no/such/file"), std::invalid_argument);
  EXPECT_THROW(read_schedules("/"), std::invalid_argument);
}

}  // namespace
}  // namespace horo
