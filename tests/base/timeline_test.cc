// The file of a timeline: complete, bounded, and the parts of a step sum up to it.
#include "horo/base/timeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

#include "horo/base/timeline_file.h"

namespace horo {
namespace {

using testing::HasSubstr;
using Json = nlohmann::json;
using std::chrono::microseconds;

class TimelineTest : public testing::Test {
 protected:
  TimelineTest() { std::filesystem::create_directories(folder_); }
  ~TimelineTest() override { std::filesystem::remove_all(folder_); }

  Json written() const {
    std::ifstream in(path_);
    return Json::parse(in);
  }
  static std::vector<Json> named(const Json& events, const std::string& name) {
    std::vector<Json> found;
    for (const Json& event : events) {
      if (event["name"] == name) found.push_back(event);
    }
    return found;
  }
  static TimelineJob job(TimePoint at) {
    TimelineJob job;
    job.number = 7;
    job.bytes = 800;
    job.released = at + microseconds(20);
    job.begun = at + microseconds(30);
    job.ends = {at + microseconds(40), at + microseconds(90), at + microseconds(90), at + microseconds(95)};
    job.tensors = {{"a \"quoted\" name", at}, {"b", at + microseconds(5)}};
    return job;
  }

  const std::string folder_ = testing::TempDir() + "timeline." + std::to_string(::getpid());
  const std::string path_ = folder_ + "/trace.json";
  Timeline timeline_;
};

TEST_F(TimelineTest, ACollectiveOfDevicesHasItsAlgorithmAndBytes) {
  timeline_.start(path_, 3, 4);
  TimelineJob on_device = job(Clock::now());
  on_device.algorithm = "nccl";
  on_device.traffic.bytes_sent = 12;
  timeline_.add(on_device);
  timeline_.stop();
  const Json arguments = named(written(), "all_reduce a \"quoted\" name and 1 more").at(0)["args"];
  EXPECT_EQ(arguments["algorithm"], "nccl");
  EXPECT_EQ(arguments["bytes_sent"], 12);
  EXPECT_EQ(arguments["bytes_received"], 0);
}

TEST_F(TimelineTest, ACollectiveHasItsPhasesAndEachTensorItsWay) {
  timeline_.start(path_, 3, 4);
  timeline_.add(job(Clock::now()));
  timeline_.stop();
  const Json events = written();
  EXPECT_EQ(named(events, "horo_timeline").at(0)["args"]["rank"], 3);
  const Json whole = named(events, "all_reduce a \"quoted\" name and 1 more").at(0);
  EXPECT_NEAR(whole["dur"], 65, 0.01);
  EXPECT_EQ(whole["args"]["number"], 7);
  EXPECT_NEAR(whole["args"]["released"].get<double>() - whole["args"]["ready"].get<double>(), 15, 0.01);
  EXPECT_NEAR(named(events, "pack").at(0)["dur"], 10, 0.01);
  EXPECT_NEAR(named(events, "transfer").at(0)["dur"], 50, 0.01);
  EXPECT_TRUE(named(events, "unpack").empty()) << "it took no time";
  EXPECT_NEAR(named(events, "deliver").at(0)["dur"], 5, 0.01);
  EXPECT_EQ(named(events, "a \"quoted\" name").size(), 2u) << "its begin and end";
  EXPECT_EQ(named(events, "agree").size(), 2u) << "of the last tensor";
  EXPECT_EQ(named(events, "b").size(), 2u);
  EXPECT_NEAR(named(events, "agree").at(0)["ts"].get<double>(), named(events, "b").at(0)["ts"].get<double>(), 0.01);
}

TEST_F(TimelineTest, WaitsAndComputationSumUpToTheStep) {
  timeline_.start(path_, 0, 1);
  const TimePoint at = Clock::now() + std::chrono::seconds(1);
  timeline_.end_step(at);
  timeline_.add_wait(at + microseconds(10), at + microseconds(30));
  timeline_.add_wait(at + microseconds(20), at + microseconds(50));  // of another thread
  timeline_.add_wait(at + microseconds(70), at + microseconds(80));
  timeline_.end_step(at + microseconds(100));
  timeline_.end_step(at + microseconds(120));
  timeline_.stop();
  const Json events = written();
  EXPECT_EQ(named(events, "before the first step").size(), 1u);
  const Json second = named(events, "step 1").at(0);
  EXPECT_NEAR(second["dur"], 100, 0.01);
  EXPECT_NEAR(second["args"]["wait_us"], 50, 0.01);
  EXPECT_NEAR(second["args"]["compute_us"], 50, 0.01);
  EXPECT_EQ(named(events, "wait").size(), 2u);
  EXPECT_NEAR(named(events, "step 2").at(0)["args"]["wait_us"], 0, 0.01);
}

TEST_F(TimelineTest, AStepHasItsPartsAndAnEpochAMark) {
  timeline_.start(path_, 1, 4);
  const TimePoint at = Clock::now() + std::chrono::seconds(1);
  timeline_.add_wait(at - microseconds(20), at - microseconds(10));
  timeline_.add(TimelineStep{at,
                             at + microseconds(100),
                             {{"forward", false, at, at + microseconds(40)},
                              {"skew", true, at + microseconds(40), at + microseconds(70)},
                              {"forward", false, at + microseconds(70), at + microseconds(100)}}});
  timeline_.begin_epoch(at + microseconds(90), 3, 0, 2);
  timeline_.stop();
  const Json events = written();
  EXPECT_EQ(named(events, "before the first step").size(), 1u);
  EXPECT_EQ(named(events, "wait").size(), 1u);
  const Json step = named(events, "step 1").at(0);
  EXPECT_NEAR(step["dur"], 100, 0.01);
  EXPECT_NEAR(step["args"]["wait_us"], 30, 0.01);
  EXPECT_NEAR(step["args"]["compute_us"], 70, 0.01);
  EXPECT_NEAR(step["args"]["forward_us"], 70, 0.01);
  EXPECT_NEAR(step["args"]["skew_us"], 30, 0.01);
  EXPECT_EQ(named(events, "forward").size(), 2u);
  EXPECT_NEAR(named(events, "skew").at(0)["dur"], 30, 0.01);
  EXPECT_EQ(named(events, "epoch 3: rank 0 of 2").at(0)["ph"], "i");
  EXPECT_FALSE(named(events, "horo_timeline").at(0)["args"]["clock"].get<std::string>().empty());
}

TEST_F(TimelineTest, OneIsWrittenAtATimeAndAnotherCanFollow) {
  EXPECT_FALSE(timeline_.is_on());
  timeline_.stop();
  timeline_.start(path_, 0, 1);
  EXPECT_TRUE(timeline_.is_on());
  EXPECT_THROW(timeline_.start(path_, 0, 1), std::invalid_argument);
  timeline_.stop();
  EXPECT_TRUE(written().is_array());
  timeline_.start(path_, 0, 1);
  timeline_.add(job(Clock::now()));
  timeline_.stop();
  EXPECT_FALSE(named(written(), "transfer").empty());
}

TEST_F(TimelineTest, AFileHasOneWriter) {
  timeline_.start(path_, 0, 1);
  timeline_.add(job(Clock::now()));
  Timeline another;
  try {
    another.start(path_, 0, 1);
    ADD_FAILURE() << "nothing was thrown";
  } catch (const std::invalid_argument& error) {
    EXPECT_THAT(error.what(), HasSubstr("trace.json: another timeline is being written to it"));
  }
  timeline_.stop();
  EXPECT_FALSE(named(written(), "transfer").empty());
  another.start(path_, 0, 1);
  another.stop();
  EXPECT_TRUE(named(written(), "transfer").empty()) << "the file begins anew";
}

TEST_F(TimelineTest, TheFileDescribesTheRankFromTheStart) {
  timeline_.start(path_, 3, 4);
  std::ifstream in(path_);
  std::string bracket, line;
  std::getline(in, bracket);
  std::getline(in, line);
  EXPECT_THAT(line, HasSubstr(R"("name":"horo_timeline","ph":"M","pid":3)"));
}

TEST_F(TimelineTest, WhatEndsAfterTheStopIsNotInTheNextFile) {
  timeline_.start(path_, 0, 1);
  const TimePoint begin = Clock::now();
  timeline_.stop();
  timeline_.add_wait(begin, Clock::now());
  timeline_.add(job(begin));
  timeline_.start(path_, 0, 1);
  timeline_.stop();
  EXPECT_TRUE(named(written(), "wait").empty());
  EXPECT_TRUE(named(written(), "transfer").empty());
}

// As a worker of a DataLoader, which may outlive the rank.
TEST_F(TimelineTest, AForkedChildHasNoCopyOfTheDescriptor) {
  timeline_.start(path_, 0, 1);
  struct stat file {};
  ASSERT_EQ(::stat(path_.c_str(), &file), 0);
  const auto has_it = [&] {
    struct stat found {};
    for (int fd = 3; fd < 256; ++fd) {
      if (::fstat(fd, &found) == 0 && found.st_ino == file.st_ino && found.st_dev == file.st_dev) return true;
    }
    return false;
  };
  EXPECT_TRUE(has_it());
  const pid_t pid = ::fork();
  if (pid == 0) ::_exit(has_it() ? 1 : 0);
  int status = 0;
  ASSERT_EQ(::waitpid(pid, &status, 0), pid);
  EXPECT_EQ(status, 0);
}

// The first error counts, though the disk has space again at the end.
TEST_F(TimelineTest, AFileThatCannotGrowEndsThereAndTheErrorSaysWhy) {
  constexpr std::uintmax_t kMostBytes = 100;
  TimelineFile file(path_, 0, 1, Clock::now());
  const auto on_signal = std::signal(SIGXFSZ, SIG_IGN);
  struct rlimit before {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  struct rlimit small = before;
  small.rlim_cur = kMostBytes;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  file.flush();
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, on_signal);
  errno = 0;
  try {
    file.close();
    ADD_FAILURE() << "nothing was thrown";
  } catch (const std::runtime_error& error) {
    EXPECT_THAT(error.what(), HasSubstr("trace.json is not complete: File too large"));
  }
  EXPECT_EQ(std::filesystem::file_size(path_), kMostBytes);
}

TEST_F(TimelineTest, AFileThatCannotBeWrittenIsNamed) {
  try {
    timeline_.start(folder_ + "/none/trace.json", 0, 1);
    ADD_FAILURE() << "nothing was thrown";
  } catch (const std::invalid_argument& error) {
    EXPECT_THAT(error.what(), HasSubstr("/none/trace.json: No such file or directory"));
  }
  EXPECT_FALSE(timeline_.is_on());
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP();
  timeline_.start("/dev/full", 0, 1);
  EXPECT_THROW(timeline_.stop(), std::runtime_error);
}

TEST_F(TimelineTest, MoreThanTheBoundIsDroppedAndCounted) {
  timeline_.start(path_, 0, 1);
  const TimePoint now = Clock::now();
  constexpr int kWaits = 400'000;  // more than wait for the writing thread at once
  for (int i = 0; i < kWaits; ++i) timeline_.add_wait(now, now + microseconds(1));
  const bool at_once = Clock::now() - now < std::chrono::milliseconds(200);  // before the thread writes
  timeline_.stop();
  std::int64_t dropped = 0;
  for (const Json& event : named(written(), "dropped")) dropped += event["args"]["records"].get<std::int64_t>();
  EXPECT_TRUE(dropped > 0 || !at_once);
  EXPECT_LT(dropped, kWaits);
  EXPECT_EQ(named(written(), "wait").size(), 1u) << "they overlap";
}

TEST(TimelinePath, HasTheRankBesideRankZero) {
  EXPECT_EQ(timeline_path("/tmp/trace.json", 0), "/tmp/trace.json");
  EXPECT_EQ(timeline_path("/tmp/a.b/trace.json", 12), "/tmp/a.b/trace.rank12.json");
  EXPECT_EQ(timeline_path("trace", 1), "trace.rank1");
}

}  // namespace
}  // namespace horo
