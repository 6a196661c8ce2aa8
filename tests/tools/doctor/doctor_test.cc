// The doctor on machines that are made up here: containers of both versions of cgroups, wrong settings, odd names.
#include "tools/horo/doctor/doctor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

namespace horo::tools {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class CgroupTest : public testing::Test {
 protected:
  CgroupTest() {
    std::string pattern = (fs::temp_directory_path() / "horo_cgroup_XXXXXX").string();
    root_ = ::mkdtemp(pattern.data());
  }
  ~CgroupTest() override { fs::remove_all(root_); }

  void write(const std::string& path, const std::string& text) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text << "\n";
  }
  CgroupLimits limits(const std::string& membership) { return cgroup_limits(membership, root_.string()); }

  fs::path root_;
};

const Value kNone;
Value number(std::int64_t value) {
  return value;
}

TEST_F(CgroupTest, WhereThereIsNoneNothingIsSaid) {
  const CgroupLimits none = limits("");
  EXPECT_EQ(none.version, 0);
  EXPECT_EQ(none.cpu_quota_percent, kNone);
  EXPECT_EQ(none.memory_bytes, kNone);
}

TEST_F(CgroupTest, TheSmallestLimitOnTheWayUpCounts) {
  write("cgroup.controllers", "cpu memory");
  write("cpu.max", "400000 100000");
  write("pod/cpu.max", "150000 100000");
  write("pod/memory.max", "max");
  write("pod/box/cpu.max", "max 100000");
  write("pod/box/memory.max", "1048576");
  const CgroupLimits found = limits("0::/pod/box\n");
  EXPECT_EQ(found.version, 2);
  EXPECT_EQ(found.cpu_quota_percent, number(150));
  EXPECT_EQ(found.memory_bytes, number(1048576));
}

TEST_F(CgroupTest, InAContainerTheMountIsItsOwnGroup) {
  write("cgroup.controllers", "cpu memory");
  write("cpu.max", "50000 100000");
  EXPECT_EQ(limits("0::/docker/of/the/host\n").cpu_quota_percent, number(50));
  EXPECT_EQ(limits("0::/../../elsewhere\n").cpu_quota_percent, number(50));
}

TEST_F(CgroupTest, VersionOneIsReadPerController) {
  write("cpu,cpuacct/job/cpu.cfs_quota_us", "200000");
  write("cpu,cpuacct/job/cpu.cfs_period_us", "100000");
  write("memory/job/memory.limit_in_bytes", "4096");
  write("memory/memory.limit_in_bytes", "9223372036854771712");
  const CgroupLimits found = limits("4:cpu,cpuacct:/job\n9:memory:/job\n1:name=systemd:/x\n0::/job\n");
  EXPECT_EQ(found.version, 1);
  EXPECT_EQ(found.cpu_quota_percent, number(200));
  EXPECT_EQ(found.memory_bytes, number(4096));
}

TEST_F(CgroupTest, NoLimitOfVersionOneIsNone) {
  write("cpu/cpu.cfs_quota_us", "-1");
  write("cpu/cpu.cfs_period_us", "100000");
  write("memory/memory.limit_in_bytes", "9223372036854771712");
  const CgroupLimits found = limits("4:cpu:/\n9:memory:/\n");
  EXPECT_EQ(found.cpu_quota_percent, kNone);
  EXPECT_EQ(found.memory_bytes, kNone);
}

TEST_F(CgroupTest, NonsenseIsNoLimit) {
  write("cgroup.controllers", "cpu memory");
  write("cpu.max", "many few");
  write("memory.max", "");
  const CgroupLimits found = limits("0::/\nnonsense\n:\n");
  EXPECT_EQ(found.cpu_quota_percent, kNone);
  EXPECT_EQ(found.memory_bytes, kNone);
}

TEST(Doctor, JsonHoldsEveryFactAndAilment) {
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

TEST(Doctor, TextSaysWhatToDo) {
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
