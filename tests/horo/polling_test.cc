// Waiting threads that poll a lane and run its short tasks.

#include <gtest/gtest.h>

#include <atomic>
#include <cfenv>
#include <deque>
#include <future>
#include <thread>

#include "horo/lane/lane.h"
#include "tests/horo/worlds.h"
#include "tests/ring/run_ranks.h"

namespace horo {
namespace {

using test::Rank;
using test::Wire;

// A lane with hand-made jobs: sums of vectors of ones.
class PolledLane {
 public:
  explicit PolledLane(Rank& rank)
      : config_(rank.config),
        tensor_table_(config_, registry_),
        lane_({rank.transport(), tensor_table_, rank.counters, config_, registry_},
              {{0, 1}, 0, {0, 0}, usual_costs(), rank.links.arenas}, 1,
              {[](const FailurePtr& failure) { ADD_FAILURE() << failure->text; }, [this] { ++done_calls_; }}) {}
  Lane& lane() { return lane_; }

  std::shared_ptr<Work> release(std::int64_t count, bool reports_done = false) {
    const std::string name = std::to_string(++released_);
    values_.emplace_back(static_cast<std::size_t>(count), 1.0F);
    const Key key = tensor_table_.declare(float_spec(name, count));
    const Submission submission{key, values_.back().data(), values_.back().data()};
    auto work = tensor_table_.submit(std::span(&submission, 1)).works.front();
    Release release;
    release.number = released_;
    release.keys = {key};
    release.reports_done = reports_done;
    latest_ = work.get();
    lane_.tasks().push(Job{release, std::make_shared<const std::vector<Item>>(tensor_table_.take().items)});
    return work;
  }
  const Work* latest() const { return latest_; }  // set before its job is there
  float last() const { return values_.back().back(); }
  int done_calls() const { return done_calls_; }

 private:
  Config config_;
  Registry registry_;
  TensorTable tensor_table_;
  std::uint64_t released_ = 0;
  std::deque<std::vector<float>> values_;
  std::atomic<const Work*> latest_ = nullptr;
  std::atomic<int> done_calls_ = 0;
  Lane lane_;
};

TEST(LanePolling, APollingThreadRunsAShortJob) {
  test::run_ranks_well({2, Wire::kShm, {}}, [](Rank& rank) {
    PolledLane polled(rank);
    polled.lane().tasks().begin_polling();
    const auto work = polled.release(2);
    EXPECT_TRUE(polled.lane().tasks().run_short_task());
    EXPECT_TRUE(work->finished());
    EXPECT_EQ(polled.last(), 2.0F);
    EXPECT_FALSE(polled.lane().tasks().run_short_task()) << "the queue is empty";
    polled.lane().tasks().end_polling();
  });
}

TEST(LanePolling, APollingThreadReportsJobsThatTell) {
  test::run_ranks_well({2, Wire::kShm, {}}, [](Rank& rank) {
    PolledLane polled(rank);
    polled.lane().tasks().begin_polling();
    const auto quiet = polled.release(2);
    EXPECT_TRUE(polled.lane().tasks().run_short_task());
    EXPECT_EQ(polled.done_calls(), 0);
    const auto reported = polled.release(2, true);
    EXPECT_TRUE(polled.lane().tasks().run_short_task());
    EXPECT_EQ(polled.done_calls(), 1);
    EXPECT_EQ(polled.lane().take_done(), 1U);
    EXPECT_EQ(polled.lane().take_done(), 0U);
    polled.lane().tasks().end_polling();
  });
}

TEST(LanePolling, TheLaneRunsAShortJobThatPollingThreadsLeave) {
  test::run_ranks_well({2, Wire::kShm, {}}, [](Rank& rank) {
    PolledLane polled(rank);
    polled.lane().tasks().begin_polling();
    const auto work = polled.release(2);
    polled.lane().tasks().end_polling();
    EXPECT_TRUE(work->wait_until(test::soon()));
    EXPECT_EQ(polled.last(), 2.0F);
  });
}

TEST(LanePolling, ALongJobIsLeftToTheLane) {
  test::run_ranks_well({2, Wire::kShm, {}}, [](Rank& rank) {
    PolledLane polled(rank);
    polled.lane().tasks().begin_polling();
    const auto work = polled.release(100'000);
    EXPECT_FALSE(polled.lane().tasks().run_short_task());
    EXPECT_TRUE(work->wait_until(test::soon()));
    EXPECT_EQ(polled.last(), 2.0F);
    polled.lane().tasks().end_polling();
  });
}

TEST(LanePolling, WithoutSharedMemoryEveryJobIsLeftToTheLane) {
  test::run_ranks_well({2, Wire::kTcp, {}}, [](Rank& rank) {
    PolledLane polled(rank);
    polled.lane().tasks().begin_polling();
    const auto work = polled.release(2);
    EXPECT_FALSE(polled.lane().tasks().run_short_task());
    EXPECT_TRUE(work->wait_until(test::soon()));
    polled.lane().tasks().end_polling();
  });
}

void yield_for_20_ms() {
  const TimePoint until = Clock::now() + std::chrono::milliseconds(20);
  while (Clock::now() < until) std::this_thread::yield();
}

// A thread in run_short_tasks() that is asleep, as far as the test can tell.
class SleepingPoller {
 public:
  SleepingPoller(TaskQueue& tasks, const std::atomic<bool>& is_done, TimePoint until = test::soon())
      : until_(until), ended_(std::async(std::launch::async, [&tasks, &is_done, until] {
          tasks.run_short_tasks(until, [&is_done] { return is_done.load(); });
          return Clock::now();
        })) {
    yield_for_20_ms();
  }
  // False: it slept to the end of its time.
  bool returned_early() { return ended_.get() < until_; }

 private:
  const TimePoint until_;
  std::future<TimePoint> ended_;
};

TEST(LanePolling, ASleepingThreadRunsShortJobsAndReturnsAfterTheEndOfOthers) {
  test::run_ranks_well({2, Wire::kShm, {}}, [](Rank& rank) {
    PolledLane polled(rank);
    std::vector<std::shared_ptr<Work>> works;  // so that no work has the address of one before
    for (const std::int64_t count : {2, 100'000}) {
      const Work* const before = polled.latest();
      const TimePoint until = test::soon();
      auto ended = std::async(std::launch::async, [&] {
        polled.lane().tasks().run_short_tasks(until,
                                              [&] { return polled.latest() != before && polled.latest()->finished(); });
      });
      yield_for_20_ms();
      const auto work = polled.release(count);
      ended.get();
      EXPECT_LT(Clock::now(), until);
      EXPECT_TRUE(work->finished());
      EXPECT_EQ(polled.last(), 2.0F);
      works.push_back(work);
    }
    std::atomic<bool> never = false;
    SleepingPoller sleeper(polled.lane().tasks(), never, Clock::now() + std::chrono::milliseconds(50));
    const auto work = polled.release(2);
    EXPECT_TRUE(work->wait_until(test::soon())) << "the sleeping thread runs it";
    EXPECT_FALSE(sleeper.returned_early());
  });
}

TEST(LanePolling, ASleepingThreadReturnsWhenTheLaneEnds) {
  test::run_ranks_well({2, Wire::kShm, {}}, [](Rank& rank) {
    std::atomic<bool> never = false;
    PolledLane stopped(rank), drained(rank);
    SleepingPoller first(stopped.lane().tasks(), never), second(drained.lane().tasks(), never);
    stopped.lane().stop();
    EXPECT_TRUE(first.returned_early());
    drained.lane().tasks().close([] {});
    EXPECT_TRUE(drained.lane().tasks().wait_until_drained([] {}));
    EXPECT_TRUE(second.returned_early());
  });
}

// The rounding mode of the caller is not used, and is restored.
TEST(LanePolling, TheFloatingPointEnvironmentOfTheCallerIsKept) {
  test::run_ranks_well({2, Wire::kShm, {}}, [](Rank& rank) {
    PolledLane polled(rank);
    std::fesetround(FE_UPWARD);
    polled.lane().tasks().begin_polling();
    const auto work = polled.release(2);
    EXPECT_TRUE(polled.lane().tasks().run_short_task());
    EXPECT_EQ(std::fegetround(), FE_UPWARD);
    polled.lane().tasks().end_polling();
    std::fesetround(FE_TONEAREST);
  });
}

// The thread of the lane may start while a polling thread already runs a task, and must not take that task for its own.
TEST(LanePolling, StopWaitsForAPollingThreadThatStartedBeforeTheThreadOfTheLane) {
  for (int turn = 0; turn < 10; ++turn) {
    std::atomic<bool> stops = false, was_late = false;
    test::run_ranks_well({2, Wire::kShm, {}}, [&](Rank& rank) {
      PolledLane polled(rank);
      std::jthread stopper;
      bool had_finished = true;  // when stop() returned
      if (rank.index() == 1) {
        while (!stops) std::this_thread::yield();
        yield_for_20_ms();
        if (was_late) return;
      }
      polled.lane().tasks().begin_polling();
      const auto work = polled.release(2);
      if (rank.index() == 0) {
        stopper = std::jthread([&] {
          yield_for_20_ms();
          stops = true;
          polled.lane().stop();
          had_finished = work->finished();
        });
      }
      if (!polled.lane().tasks().run_short_task()) was_late = true;
      if (stopper.joinable()) stopper.join();
      EXPECT_TRUE(had_finished || was_late);
      polled.lane().tasks().end_polling();
    });
  }
}

// Several waiting threads with short and long tensors in one world.
TEST(LanePolling, SeveralCallersMayWait) {
  test::run_ranks_well({2, Wire::kShm, {}}, [](Rank& rank) {
    Session session(rank.config, std::move(rank.links));
    std::vector<std::jthread> callers;
    for (int caller = 0; caller < 3; ++caller) {
      callers.emplace_back([&session, caller] {
        for (int step = 0; step < 200; ++step) {
          const bool is_long = step % 20 == caller;
          std::vector<float> values(is_long ? 50'000 : 5, static_cast<float>(step));
          const TensorSpec spec = float_spec("c" + std::to_string(caller) + (is_long ? "l" : "s"),
                                             static_cast<std::int64_t>(values.size()));
          session.run(spec, values.data(), values.data());
          ASSERT_EQ(values.back(), static_cast<float>(2 * step)) << caller << " " << step;
        }
      });
    }
    callers.clear();
    meet(session);
  });
}

}  // namespace
}  // namespace horo
