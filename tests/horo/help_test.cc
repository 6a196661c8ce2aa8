// Callers who wait and do the lane's short jobs themselves.

#include <gtest/gtest.h>

#include <atomic>
#include <cfenv>
#include <deque>
#include <thread>

#include "horo/lane/lane.h"
#include "tests/horo/worlds.h"
#include "tests/ring/run_ranks.h"

namespace horo {
namespace {

using test::Rank;
using test::Wire;

// A lane whose jobs are made by hand: sums of vectors of ones.
class Helped {
 public:
  explicit Helped(Rank& rank)
      : config_(rank.config),
        tensor_table_(config_, registry_),
        lane_({rank.transport(), tensor_table_, rank.counters, config_, registry_}, {{0, 1}, 0, {0, 0}}, 1,
              {[](FailurePtr failure) { ADD_FAILURE() << failure->text; }, [this] { ++told_; }}) {}
  Lane& lane() { return lane_; }

  std::shared_ptr<Work> release(std::int64_t count, bool tells = false) {
    const std::string name = std::to_string(++released_);
    values_.emplace_back(static_cast<std::size_t>(count), 1.0F);
    const Key key = tensor_table_.declare(float_spec(name, count));
    const Submission submission{key, values_.back().data(), values_.back().data()};
    auto work = tensor_table_.put(std::span(&submission, 1)).works.front();
    Release release;
    release.number = released_;
    release.keys = {key};
    release.tells = tells;
    lane_.run({release, tensor_table_.items(release.keys)});
    return work;
  }
  float last() const { return values_.back().back(); }
  int told() const { return told_; }

 private:
  Config config_;
  Registry registry_;
  TensorTable tensor_table_;
  std::uint64_t released_ = 0;
  std::deque<std::vector<float>> values_;
  std::atomic<int> told_ = 0;
  Lane lane_;
};

TEST(Help, AShortJobIsDoneByWhoHelps) {
  test::run_ranks_well({2, Wire::kShm, {}}, [](Rank& rank) {
    Helped helped(rank);
    helped.lane().begin_help();
    const auto work = helped.release(2);
    EXPECT_TRUE(helped.lane().help());
    EXPECT_TRUE(work->finished());
    EXPECT_EQ(helped.last(), 2.0F);
    EXPECT_FALSE(helped.lane().help()) << "nothing is left";
    helped.lane().end_help();
  });
}

TEST(Help, WhoHelpsTellsWhatIsDone) {
  test::run_ranks_well({2, Wire::kShm, {}}, [](Rank& rank) {
    Helped helped(rank);
    helped.lane().begin_help();
    const auto quiet = helped.release(2);
    EXPECT_TRUE(helped.lane().help());
    EXPECT_EQ(helped.told(), 0);
    const auto told = helped.release(2, true);
    EXPECT_TRUE(helped.lane().help());
    EXPECT_EQ(helped.told(), 1);
    EXPECT_EQ(helped.lane().take_done(), 1U);
    EXPECT_EQ(helped.lane().take_done(), 0U);
    helped.lane().end_help();
  });
}

TEST(Help, WhatHelpersLeaveIsDoneByTheLane) {
  test::run_ranks_well({2, Wire::kShm, {}}, [](Rank& rank) {
    Helped helped(rank);
    helped.lane().begin_help();
    const auto work = helped.release(2);
    helped.lane().end_help();
    EXPECT_TRUE(work->wait_until(test::soon()));
    EXPECT_EQ(helped.last(), 2.0F);
  });
}

TEST(Help, WhatIsLongIsLeftToTheLane) {
  test::run_ranks_well({2, Wire::kShm, {}}, [](Rank& rank) {
    Helped helped(rank);
    helped.lane().begin_help();
    const auto work = helped.release(100'000);
    EXPECT_FALSE(helped.lane().help());
    EXPECT_TRUE(work->wait_until(test::soon()));
    EXPECT_EQ(helped.last(), 2.0F);
    helped.lane().end_help();
  });
}

TEST(Help, WhereMembersShareNoMemoryNobodyHelps) {
  test::run_ranks_well({2, Wire::kTcp, {}}, [](Rank& rank) {
    Helped helped(rank);
    helped.lane().begin_help();
    const auto work = helped.release(2);
    EXPECT_FALSE(helped.lane().help());
    EXPECT_TRUE(work->wait_until(test::soon()));
    helped.lane().end_help();
  });
}

// The rounding of the caller is neither used nor lost.
TEST(Help, TheCallersFloatingPointStateStaysHisOwn) {
  test::run_ranks_well({2, Wire::kShm, {}}, [](Rank& rank) {
    Helped helped(rank);
    std::fesetround(FE_UPWARD);
    helped.lane().begin_help();
    const auto work = helped.release(2);
    EXPECT_TRUE(helped.lane().help());
    EXPECT_EQ(std::fegetround(), FE_UPWARD);
    helped.lane().end_help();
    std::fesetround(FE_TONEAREST);
  });
}

void let_others_run() {
  const TimePoint until = Clock::now() + std::chrono::milliseconds(20);
  while (Clock::now() < until) std::this_thread::yield();
}

// The lane's thread may begin while the helper is already at it, and must not take him for itself.
TEST(Help, AHelperWhoBeganBeforeTheThreadIsWaitedFor) {
  for (int turn = 0; turn < 10; ++turn) {
    std::atomic<bool> stops = false, came_late = false;
    test::run_ranks_well({2, Wire::kShm, {}}, [&](Rank& rank) {
      Helped helped(rank);
      std::jthread stopper;
      bool is_over = true;  // when it had been stopped
      if (rank.index() == 1) {
        while (!stops) std::this_thread::yield();
        let_others_run();
        if (came_late) return;
      }
      helped.lane().begin_help();
      const auto work = helped.release(2);
      if (rank.index() == 0) {
        stopper = std::jthread([&] {
          let_others_run();
          stops = true;
          helped.lane().stop();
          is_over = work->finished();
        });
      }
      if (!helped.lane().help()) came_late = true;
      if (stopper.joinable()) stopper.join();
      EXPECT_TRUE(is_over || came_late);
      helped.lane().end_help();
    });
  }
}

// Several threads that wait, short and long tensors, in one world.
TEST(Help, AnyNumberOfCallersMayWait) {
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
