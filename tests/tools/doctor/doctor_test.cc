// The doctor's reports, with wrong settings and odd names. (Control groups: tests/ring/os/cgroup_test.cc.)
#include "tools/horo/doctor/doctor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <nlohmann/json.hpp>

namespace horo::tools {
namespace {

using testing::HasSubstr;

TEST(Doctor, JsonHasEveryFactAndFinding) {
  DoctorReport report;
  report.section("a").add("text", std::string("x \"y\" \xff"));
  report.section("b").add("number", std::int64_t{1} << 40);
  report.sections.back().add("nothing", {});
  report.sections.back().add("truth", true);
  report.problems.push_back({"p", "do"});
  const auto json = nlohmann::json::parse(to_json(report));
  EXPECT_THAT(json["a"]["text"].get<std::string>(), HasSubstr("x \"y\""));
  EXPECT_EQ(json["b"], (nlohmann::json{{"number", std::int64_t{1} << 40}, {"nothing", nullptr}, {"truth", true}}));
  EXPECT_EQ(json["problems"], (nlohmann::json::array({{{"what", "p"}, {"advice", "do"}}})));
  EXPECT_EQ(json["hints"], nlohmann::json::array());
}

TEST(Doctor, TextHasTheAdvice) {
  DoctorReport report;
  report.section("a").add("fact", false);
  report.problems.push_back({"the moon is down", "wait for the tide"});
  const std::string text = to_text(report);
  EXPECT_THAT(text, HasSubstr("  fact  no\n"));
  EXPECT_THAT(text, HasSubstr("the moon is down\n    -> wait for the tide"));
  EXPECT_THAT(text, HasSubstr("1 problem."));
}

TEST(Doctor, TheSelfCheckIsRight) {
  DoctorReport report;
  examine_by_running(report);
  EXPECT_TRUE(report.problems.empty()) << to_text(report);
}

TEST(Doctor, AWrongSettingIsAProblemThatNamesIt) {
  ::setenv("HORO_MAX_DIMS", "many", 1);
  DoctorReport report;
  examine_settings(report);
  ::unsetenv("HORO_MAX_DIMS");
  ASSERT_EQ(report.problems.size(), 1U);
  EXPECT_THAT(report.problems[0].what, HasSubstr("HORO_MAX_DIMS=\"many\": expected a whole number from 1 to 1024"));
}

}  // namespace
}  // namespace horo::tools
