#include "ring/os/waiting.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sched.h>

#include <thread>

namespace horo {
namespace {

// On a busy machine the thread may get the core back so late that it gives up; the test tries again then.
TEST(BriefWaitTest, SeesAConditionThatComesTrueAfterAFewPolls) {
  bool is_seen = false;
  for (const TimePoint until = Clock::now() + std::chrono::seconds(20); !is_seen && Clock::now() < until;) {
    BriefWait brief_wait;
    int looks = 0;
    is_seen = brief_wait.poll([&] { return ++looks == 3; });
    EXPECT_LE(looks, 3);
  }
  EXPECT_TRUE(is_seen);
}

TEST(BriefWaitTest, GivesUpIfTheConditionStaysFalse) {
  BriefWait brief_wait;
  EXPECT_FALSE(brief_wait.poll([] { return false; }));
}

// Pins this thread, and those that it starts, to one core until the end of the scope.
class OneCore {
 public:
  OneCore() {
    pthread_getaffinity_np(pthread_self(), sizeof(all_), &all_);
    int core = 0;
    while (!CPU_ISSET(core, &all_)) ++core;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    pthread_setaffinity_np(pthread_self(), sizeof(one), &one);
  }
  ~OneCore() { pthread_setaffinity_np(pthread_self(), sizeof(all_), &all_); }
  OneCore(const OneCore&) = delete;
  OneCore& operator=(const OneCore&) = delete;

 private:
  cpu_set_t all_;
};

TEST(BriefWaitTest, PollsOnlyOnceBesideAThreadThatKeepsTheCore) {
  const OneCore pinned;
  std::jthread busy([](const std::stop_token& stop) {
    while (!stop.stop_requested()) relax_core();
  });
  BriefWait brief_wait;
  int looks = 0;
  for (const TimePoint until = Clock::now() + std::chrono::seconds(20); looks != 1 && Clock::now() < until;) {
    looks = 0;
    brief_wait.poll([&] { return ++looks < 0; });
  }
  EXPECT_EQ(looks, 1);
}

TEST(BriefWaitTest, KeepsPollingIfTurnsAreShorterThanTheLimit) {
  const OneCore pinned;
  std::jthread busy([](const std::stop_token& stop) {
    while (!stop.stop_requested()) relax_core();
  });
  BriefWait brief_wait(std::chrono::hours(1));
  for (int turn = 0; turn < 20; ++turn) {
    int looks = 0;
    EXPECT_FALSE(brief_wait.poll([&] { return ++looks < 0; }));
    EXPECT_GE(looks, 2);
  }
}

}  // namespace
}  // namespace horo
