// Limits of control groups, in made-up hierarchies of both versions.
#include "ring/os/cgroup.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include "ring/os/waiting.h"

namespace horo {
namespace {

namespace fs = std::filesystem;

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

TEST_F(CgroupTest, WithoutControlGroupsThereAreNoLimits) {
  const CgroupLimits none = limits("");
  EXPECT_EQ(none.version, 0);
  EXPECT_EQ(none.cpu_quota_percent, std::nullopt);
  EXPECT_EQ(none.memory_bytes, std::nullopt);
}

TEST_F(CgroupTest, TheSmallestLimitOfAllGroupsAboveCounts) {
  write("cgroup.controllers", "cpu memory");
  write("cpu.max", "400000 100000");
  write("pod/cpu.max", "150000 100000");
  write("pod/memory.max", "max");
  write("pod/box/cpu.max", "max 100000");
  write("pod/box/memory.max", "1048576");
  const CgroupLimits found = limits("0::/pod/box\n");
  EXPECT_EQ(found.version, 2);
  EXPECT_EQ(found.cpu_quota_percent, 150);
  EXPECT_EQ(found.memory_bytes, 1048576);
}

TEST_F(CgroupTest, InAContainerTheMountIsItsOwnGroup) {
  write("cgroup.controllers", "cpu memory");
  write("cpu.max", "50000 100000");
  EXPECT_EQ(limits("0::/docker/of/the/host\n").cpu_quota_percent, 50);
  EXPECT_EQ(limits("0::/../../elsewhere\n").cpu_quota_percent, 50);
}

TEST_F(CgroupTest, VersionOneIsReadPerController) {
  write("cpu,cpuacct/job/cpu.cfs_quota_us", "200000");
  write("cpu,cpuacct/job/cpu.cfs_period_us", "100000");
  write("memory/job/memory.limit_in_bytes", "4096");
  write("memory/memory.limit_in_bytes", "9223372036854771712");
  const CgroupLimits found = limits("4:cpu,cpuacct:/job\n9:memory:/job\n1:name=systemd:/x\n0::/job\n");
  EXPECT_EQ(found.version, 1);
  EXPECT_EQ(found.cpu_quota_percent, 200);
  EXPECT_EQ(found.memory_bytes, 4096);
}

TEST_F(CgroupTest, TheNumbersForNoLimitOfVersionOneAreNoLimits) {
  write("cpu/cpu.cfs_quota_us", "-1");
  write("cpu/cpu.cfs_period_us", "100000");
  write("memory/memory.limit_in_bytes", "9223372036854771712");
  const CgroupLimits found = limits("4:cpu:/\n9:memory:/\n");
  EXPECT_EQ(found.cpu_quota_percent, std::nullopt);
  EXPECT_EQ(found.memory_bytes, std::nullopt);
}

TEST_F(CgroupTest, TextThatIsNoNumberIsNoLimit) {
  write("cgroup.controllers", "cpu memory");
  write("cpu.max", "many few");
  write("memory.max", "");
  const CgroupLimits found = limits("0::/\nnonsense\n:\n");
  EXPECT_EQ(found.cpu_quota_percent, std::nullopt);
  EXPECT_EQ(found.memory_bytes, std::nullopt);
}

TEST_F(CgroupTest, AQuotaCountsAsThatManyWholeCores) {
  EXPECT_EQ(cores_within(CgroupLimits{2, 150, {}}, 8), 1);
  EXPECT_EQ(cores_within(CgroupLimits{2, 50, {}}, 8), 1);
  EXPECT_EQ(cores_within(CgroupLimits{2, 300, {}}, 8), 3);
  EXPECT_EQ(cores_within(CgroupLimits{2, 300, {}}, 2), 2);
  EXPECT_EQ(cores_within(CgroupLimits{}, 8), 8);
}

}  // namespace
}  // namespace horo
