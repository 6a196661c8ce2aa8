#include "ring/os/waiting.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sched.h>

#include <thread>

namespace horo {
namespace {

// On a busy machine the thread may get the core back so late that it gives up; the test tries again then.
TEST(LookoutTest, SeesAConditionThatComesTrueAfterAFewPolls) {
  bool is_seen = false;
  for (const TimePoint until = Clock::now() + std::chrono::seconds(20); !is_seen && Clock::now() < until;) {
    Lookout lookout;
    int looks = 0;
    is_seen = lookout.look([&] { return ++looks == 3; });
    EXPECT_LE(looks, 3);
  }
  EXPECT_TRUE(is_seen);
}

TEST(LookoutTest, GivesUpIfTheConditionStaysFalse) {
  Lookout lookout;
  EXPECT_FALSE(lookout.look([] { return false; }));
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

TEST(LookoutTest, PollsOnlyOnceBesideAThreadThatKeepsTheCore) {
  const OneCore pinned;
  std::jthread busy([](const std::stop_token& stop) {
    while (!stop.stop_requested()) relax_core();
  });
  Lookout lookout;
  int looks = 0;
  for (const TimePoint until = Clock::now() + std::chrono::seconds(20); looks != 1 && Clock::now() < until;) {
    looks = 0;
    lookout.look([&] { return ++looks < 0; });
  }
  EXPECT_EQ(looks, 1);
}

TEST(LookoutTest, KeepsPollingIfTurnsAreShorterThanTheLimit) {
  const OneCore pinned;
  std::jthread busy([](const std::stop_token& stop) {
    while (!stop.stop_requested()) relax_core();
  });
  Lookout lookout(std::chrono::hours(1));
  for (int turn = 0; turn < 20; ++turn) {
    int looks = 0;
    EXPECT_FALSE(lookout.look([&] { return ++looks < 0; }));
    EXPECT_GE(looks, 2);
  }
}

}  // namespace
}  // namespace horo
