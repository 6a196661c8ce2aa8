// The settings of the ranks, as horo run checks them.
#include "tools/horo/run/rank_settings.h"

#include <gtest/gtest.h>

#include <fstream>
#include <stdexcept>

#include "ring/schedule/schedule.h"
#include "ring/schedule/schedule_json.h"

namespace horo::tools {
namespace {

void write_schedules(const std::string& path) {
  GivenSchedules given;
  given.shape.size = 2;
  for (int member = 0; member < 2; ++member) given.schedules.push_back(tree_all_reduce(given.shape, member));
  std::ofstream(path) << to_json(given);
}

TEST(RankSettings, AFileOfSchedulesIsReadInTheFolderOfTheRanks) {
  write_schedules(testing::TempDir() + "/of_the_ranks.json");
  const std::vector<std::string> settings = {"HORO_ALGORITHMS=broadcast=tree,all_reduce=@of_the_ranks.json"};
  EXPECT_NO_THROW(check_settings(settings, testing::TempDir()));
  EXPECT_THROW(check_settings(settings, "/no/such/folder"), std::invalid_argument);
}

TEST(RankSettings, TheFilesAndTheProcessorOfAnotherHostAreNotLookedForHere) {
  const std::string file = "HORO_ALGORITHMS=all_reduce=@/of/another/host.json";
  EXPECT_THROW(check_settings({file}, ""), std::invalid_argument);
  EXPECT_NO_THROW(check_settings({file}, std::nullopt));
  int refused = 0;  // no processor has both
  for (const char* setting : {"HORO_KERNELS=neon", "HORO_KERNELS=avx2"}) {
    EXPECT_NO_THROW(check_settings({setting}, std::nullopt));
    try {
      check_settings({setting}, "");
    } catch (const std::invalid_argument&) {
      ++refused;
    }
  }
  EXPECT_GE(refused, 1);
  EXPECT_THROW(check_settings({"HORO_ALGORITHMS=all_reduce=best"}, std::nullopt), std::invalid_argument);
}

}  // namespace
}  // namespace horo::tools
