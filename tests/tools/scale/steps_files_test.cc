#include "tools/horo/scale/steps_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "horo/base/say.h"

namespace horo::tools {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string line_of(int rank, int step) {
  return say("{\"rank\":", rank, ",\"step\":", step, R"(,"begin":0,"time":5,"bars":{"forward":5}})");
}

class StepsFiles : public testing::Test {
 protected:
  StepsFiles() : folder_(std::filesystem::temp_directory_path() / say("steps", ::getpid())) {
    std::filesystem::create_directories(folder_);
  }
  ~StepsFiles() override { std::filesystem::remove_all(folder_); }

  std::string file(int rank) const { return steps_file_of(folder_.string(), rank); }
  void append(int rank, const std::string& text) const { std::ofstream(file(rank), std::ios::app) << text; }

  std::vector<std::int64_t> look(GrowingSteps& steps) const {
    std::vector<std::int64_t> numbers;
    steps.look([&](const StepRow& row) { numbers.push_back(row.step); });
    return numbers;
  }

  const std::filesystem::path folder_;
};

TEST_F(StepsFiles, AGrowingFileGivesEachLineOnceWhenItIsWhole) {
  GrowingSteps steps(file(0));
  EXPECT_THAT(look(steps), ElementsAre());
  append(0, line_of(0, 1) + "\n" + line_of(0, 2).substr(0, 20));
  EXPECT_THAT(look(steps), ElementsAre(1));
  append(0, line_of(0, 2).substr(20) + "\n" + line_of(0, 3) + "\n");
  EXPECT_THAT(look(steps), ElementsAre(2, 3));
  EXPECT_THAT(look(steps), ElementsAre());
}

TEST_F(StepsFiles, TheLastStepIsThatOfTheEnd) {
  EXPECT_EQ(last_step_in(file(1)), 0);
  for (int step = 1; step <= 2'000; ++step) append(1, line_of(1, step) + "\n");
  append(1, "{\"rank\":");
  EXPECT_EQ(last_step_in(file(1)), 2'000);
}

TEST_F(StepsFiles, ALineThatIsCutAtTheEndIsNoError) {
  append(0, line_of(0, 1) + "\n" + line_of(0, 2).substr(0, 20));
  append(1, line_of(1, 1) + "\n{\"rank\":1,\"left_out\":7}\n");
  StepsOfRun steps = read_steps(folder_.string(), 2);
  EXPECT_EQ(steps.error, "");
  EXPECT_EQ(steps.left_out, 7);
  EXPECT_EQ(steps.by_rank[0].size(), 1u);
  append(0, "\n");
  steps = read_steps(folder_.string(), 2);
  EXPECT_THAT(steps.error, HasSubstr("steps.jsonl: a line is no JSON object"));
}

}  // namespace
}  // namespace horo::tools
