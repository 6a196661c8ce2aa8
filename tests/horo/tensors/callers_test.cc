// Which callers wait, as the leader's search for deadlocks needs it. Time is an argument.
#include "horo/tensors/callers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <latch>
#include <thread>

namespace horo {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::IsEmpty;

const TimePoint kStart = TimePoint{} + std::chrono::hours(1);

// Runs the call in another thread, which then lives until this object's end.
class OtherThread {
 public:
  explicit OtherThread(const std::function<void()>& call)
      : thread_([this, call] {
          call();
          called_.count_down();
          end_.wait();
        }) {
    called_.wait();
  }
  ~OtherThread() { end_.count_down(); }

 private:
  std::latch called_{1};
  std::latch end_{1};
  std::jthread thread_;
};

TEST(Callers, AWaitWithoutAnEndCountsFromItsBegin) {
  Callers callers;
  callers.submitted(kStart);
  EXPECT_THAT(callers.waits(kStart + 1s).threads, IsEmpty());
  callers.begin_wait({3, 4}, TimePoint::max(), kStart + 2s);
  EXPECT_THAT(callers.waits(kStart + 70s).threads, ElementsAre(ElementsAre(3, 4)));
  EXPECT_EQ(callers.waits(kStart + 70s).unchanged, 68s);
  callers.end_wait(true, kStart + 71s);
  EXPECT_THAT(callers.waits(kStart + 71s).threads, IsEmpty());
}

TEST(Callers, SlicesOfOneWaitCountFromTheFirst) {
  Callers callers;
  callers.submitted(kStart);
  TimePoint now = kStart;
  for (int i = 0; i < 600; ++i) {
    callers.begin_wait({3}, now + 100ms, now);
    callers.end_wait(false, now += 100ms);
  }
  EXPECT_EQ(callers.waits(now + 500ms).unchanged, 60'500ms) << "between two slices";
  EXPECT_THAT(callers.waits(now + 1'001ms).threads, IsEmpty()) << "no further slice came";
  callers.begin_wait({3}, now + 5s + 100ms, now + 5s);
  EXPECT_EQ(callers.waits(now + 5s).unchanged, 0s) << "the pause was too long";
}

TEST(Callers, SlicesForOtherWorksOrAfterASubmitBeginAnew) {
  Callers callers;
  const auto slice = [&](Key key, TimePoint at) {
    callers.begin_wait({key}, at + 100ms, at);
    callers.end_wait(false, at + 100ms);
  };
  slice(3, kStart);
  slice(4, kStart + 200ms);
  EXPECT_EQ(callers.waits(kStart + 300ms).unchanged, 100ms);
  callers.submitted(kStart + 400ms);
  slice(4, kStart + 500ms);
  EXPECT_EQ(callers.waits(kStart + 600ms).unchanged, 100ms);
}

TEST(Callers, ALongWaitWithAnEndDoesNotCount) {
  Callers callers;
  callers.submitted(kStart);
  callers.begin_wait({3}, kStart + 60s, kStart);
  EXPECT_THAT(callers.waits(kStart + 59s).threads, IsEmpty());
}

TEST(Callers, AThreadThatHasSubmittedAndDoesNotWaitIsNoWait) {
  Callers callers;
  callers.begin_wait({3}, TimePoint::max(), kStart);
  const OtherThread other([&] { callers.submitted(kStart); });
  EXPECT_THAT(callers.waits(kStart + 70s).threads, IsEmpty());
}

TEST(Callers, AThreadThatHasEndedIsForgotten) {
  Callers callers;
  callers.begin_wait({3}, TimePoint::max(), kStart);
  {
    const OtherThread other([&] { callers.submitted(kStart + 10s); });
  }
  EXPECT_EQ(callers.waits(kStart + 70s).unchanged, 60s) << "since its submit";
}

TEST(Callers, AllThreadsThatWaitAreReported) {
  Callers callers;
  callers.submitted(kStart);
  callers.begin_wait({3}, TimePoint::max(), kStart);
  const OtherThread other([&] {
    callers.submitted(kStart + 1s);
    callers.begin_wait({5}, TimePoint::max(), kStart + 2s);
  });
  const CallerWaits waits = callers.waits(kStart + 62s);
  EXPECT_THAT(waits.threads, testing::UnorderedElementsAre(ElementsAre(3), ElementsAre(5)));
  EXPECT_EQ(waits.unchanged, 60s);
}

}  // namespace
}  // namespace horo
