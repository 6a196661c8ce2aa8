// Stragglers of jobs with planted delays, in virtual time: each rank has a step of known parts, and all wait for the
// last one at its end.
#include "horo/steps/straggler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>

namespace horo {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;

struct Job {
  int ranks = 4;
  int steps = 128;
  std::uint64_t seed = 1;
  double noise = 0.01;  // of each part
  // What a rank has beside its usual step: the bar and the time; stops, collections and waits for a core are in a bar.
  std::function<void(int rank, int step, StepRecord& record)> plant = [](int, int, StepRecord&) {};

  std::vector<RankSteps> run() const {
    std::mt19937_64 random(seed);
    std::normal_distribution<double> jitter(1, noise);
    std::vector<RankSteps> all(static_cast<std::size_t>(ranks));
    TimePoint begin{};
    for (int step = 0; step < steps; ++step) {
      std::vector<StepRecord> records;
      for (int rank = 0; rank < ranks; ++rank) {
        StepRecord record;
        record.number = static_cast<std::uint64_t>(step) + 1;
        record.begin = begin;
        record.gc_ns = record.run_queue_ns = 0;
        record.work = 100;
        const auto give = [&](Bar bar, double ms) {
          record.bars[index_of(bar)] = nanoseconds(static_cast<std::int64_t>(ms * 1e6 * jitter(random)));
        };
        give(Bar::kInput, 1), give(Bar::kForward, 15), give(Bar::kBackward, 30), give(Bar::kOptimizer, 3);
        plant(rank, step, record);
        records.push_back(record);
      }
      const auto own = [](const StepRecord& record) {
        nanoseconds sum{};
        for (const auto bar : record.bars) sum += bar;
        return sum;
      };
      const auto last = std::ranges::max_element(records, {}, own);
      const nanoseconds longest = own(*last), transfer = microseconds(1'500);
      const auto late = static_cast<std::int32_t>(last - records.begin());
      for (StepRecord& record : records) {
        const nanoseconds skew = longest - own(record);
        record.bars[index_of(Bar::kSkew)] = skew;
        record.bars[index_of(Bar::kTransfer)] = transfer;
        record.late_ranks[0] = skew > nanoseconds(0) ? late : -1;
        record.late_skews[0] = skew;
        record.end = begin + longest + transfer;
      }
      begin = records.front().end;
      for (int rank = 0; rank < ranks; ++rank) {
        all[static_cast<std::size_t>(rank)].rank = rank;
        all[static_cast<std::size_t>(rank)].steps.push_back(records[static_cast<std::size_t>(rank)]);
      }
    }
    return all;
  }
};

void add(StepRecord& record, Bar bar, nanoseconds time) {
  record.bars[index_of(bar)] += time;
}

std::optional<Straggler> searched(const Job& job) {
  return find_straggler(job.run());
}

TEST(Straggler, EqualRanksAreNotBlamed) {
  EXPECT_FALSE(searched({}));
  EXPECT_FALSE(find_straggler(std::vector<RankSteps>{}));
  EXPECT_FALSE(find_straggler(Job{1}.run()));
  EXPECT_FALSE(searched({.steps = 7, .plant = [](int rank, int, StepRecord& record) {
                           if (rank == 2) add(record, Bar::kForward, milliseconds(20));
                         }}));
}

TEST(Straggler, ASlowLoaderOfAllRanksIsNoRanksFault) {
  EXPECT_FALSE(searched({.plant = [](int, int, StepRecord& record) { add(record, Bar::kInput, milliseconds(40)); }}));
}

TEST(Straggler, AnEndOfTheWindowIsEnough) {
  const auto found = searched({.steps = 9, .plant = [](int rank, int, StepRecord& record) {
                                 if (rank == 2) add(record, Bar::kForward, milliseconds(20));
                               }});
  ASSERT_TRUE(found);
  EXPECT_EQ(found->rank, 2);
}

TEST(Straggler, PeriodicCheckpointsOfRankZero) {
  const auto found = searched({.plant = [](int rank, int step, StepRecord& record) {
    if (rank == 0 && step % 20 == 3) add(record, Bar::kCheckpoint, milliseconds(60));
  }});
  ASSERT_TRUE(found);
  EXPECT_EQ(found->rank, 0);
  EXPECT_EQ(found->when, When::kPeriodic);
  EXPECT_EQ(found->period, 20);
  EXPECT_EQ(found->cause, Cause::kBar);
  EXPECT_EQ(found->bar, Bar::kCheckpoint);
}

TEST(Straggler, EvidencePrecedesTheBarItIsIn) {
  for (const Cause cause : {Cause::kCollection, Cause::kNoCore}) {
    std::mt19937 random(3);
    const auto found = searched({.plant = [&](int rank, int, StepRecord& record) {
      if (rank != 1 || random() % 7 != 0) return;
      add(record, Bar::kBackward, milliseconds(30));
      (cause == Cause::kCollection ? record.gc_ns : record.run_queue_ns) = 29'000'000;
    }});
    ASSERT_TRUE(found);
    EXPECT_EQ(found->rank, 1);
    EXPECT_EQ(found->when, When::kAtRandom);
    EXPECT_EQ(found->cause, cause);
  }
}

// The kernel is asked every 10 ms at most, and tells of all steps since.
TEST(Straggler, AReadingOfTheKernelCoversTheStepsSinceTheLastOne) {
  std::mt19937 random(3);
  std::int64_t since = 0;
  const auto found = searched({.plant = [&](int rank, int step, StepRecord& record) {
    if (rank != 1) return;
    if (random() % 7 == 0) {
      add(record, Bar::kBackward, milliseconds(30));
      since += 29'000'000;
    }
    record.run_queue_ns = step % 4 == 3 ? std::exchange(since, 0) : kNotKnown;
  }});
  ASSERT_TRUE(found);
  EXPECT_EQ(found->rank, 1);
  EXPECT_EQ(found->cause, Cause::kNoCore);
}

TEST(Straggler, AStoppedRank) {
  std::vector<int> stops{11, 40, 47, 90, 111};
  std::vector<RankSteps> ranks = Job{.plant = [&](int rank, int step, StepRecord& record) {
                                   if (rank == 1 && std::ranges::count(stops, step) != 0)
                                     add(record, Bar::kForward, milliseconds(30));
                                 }}.run();
  for (const int step : stops) {
    const StepRecord& record = ranks[1].steps[static_cast<std::size_t>(step)];
    ranks[1].stopped.push_back({record.begin + milliseconds(5), record.begin + milliseconds(35)});
  }
  const auto found = find_straggler(ranks);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->rank, 1);
  EXPECT_EQ(found->when, When::kAtRandom);
  EXPECT_EQ(found->cause, Cause::kStopped);
}

TEST(Straggler, DataOfDifferentSizesOnAllRanksAreNoRanksFault) {
  std::mt19937 random(4);
  const auto found = searched({.plant = [&](int, int, StepRecord& record) {
    record.work = static_cast<std::int64_t>(random() % 1000);
    add(record, Bar::kForward, microseconds(20 * record.work));
  }});
  ASSERT_TRUE(found);
  EXPECT_EQ(found->rank, -1);
  EXPECT_EQ(found->when, When::kWithData);
  EXPECT_GT(found->correlation, 0.9);
}

TEST(Straggler, TwoRanksThatTakeTurnsAreNotOneRanksFault) {
  const auto found = searched({.plant = [](int rank, int step, StepRecord& record) {
    if (rank == step % 2) add(record, Bar::kForward, milliseconds(20));
  }});
  ASSERT_TRUE(found);
  EXPECT_EQ(found->rank, -1);
}

TEST(Straggler, ALateRankThatDoesNothingLongerIsNotExplained) {
  const auto found = searched({.plant = [](int rank, int, StepRecord& record) {
    if (rank != 1) return;
    for (const Bar bar : {Bar::kInput, Bar::kForward, Bar::kBackward, Bar::kOptimizer})
      add(record, bar, milliseconds(5));
  }});
  ASSERT_TRUE(found);
  EXPECT_EQ(found->rank, 1);
  EXPECT_EQ(found->cause, Cause::kNotExplained);
}

// A rank that is early by chance waits longer: that is not what the late one does.
TEST(Straggler, ARankIsLateByWhatTheMedianRankWaits) {
  std::mt19937_64 random(5);
  const auto found = searched({.noise = 1e-9, .plant = [&](int rank, int, StepRecord& record) {
                                 if (rank == 2) add(record, Bar::kForward, milliseconds(8));
                                 if (rank != 2 && random() % 3 != 0) add(record, Bar::kBackward, milliseconds(3));
                               }});
  ASSERT_TRUE(found);
  EXPECT_EQ(found->rank, 2);
  EXPECT_NEAR(static_cast<double>(found->late.count()), 5e6, 1e3);
  const auto equal = searched({.noise = 1e-9, .plant = [&](int rank, int step, StepRecord& record) {
                                 if (rank == 2) add(record, Bar::kForward, milliseconds(8));
                                 if (rank == step % 2) add(record, Bar::kBackward, milliseconds(-3));
                               }});
  ASSERT_TRUE(equal);
  EXPECT_NEAR(static_cast<double>(equal->late.count()), 8e6, 1e3);
  EXPECT_EQ(equal->cause, Cause::kBar);
}

// A rank that has joined has other numbers, and a rank may lack the first steps of the others.
TEST(Straggler, StepsBelongTogetherByTheirEnds) {
  std::vector<RankSteps> ranks = Job{.plant = [](int rank, int, StepRecord& record) {
                                   if (rank == 3) add(record, Bar::kBackward, milliseconds(10));
                                 }}.run();
  ranks[3].steps.erase(ranks[3].steps.begin(), ranks[3].steps.begin() + 40);
  for (std::size_t i = 0; i < ranks[3].steps.size(); ++i) ranks[3].steps[i].number = i + 1;
  const auto found = find_straggler(ranks);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->rank, 3);
  EXPECT_EQ(found->when, When::kAlways);
  EXPECT_EQ(found->bar, Bar::kBackward);
}

// Ranks 0 and 1 share a host, and so do ranks 2 and 3.
std::optional<Straggler> searched_on_hosts(const Job& job) {
  std::vector<RankSteps> ranks = job.run();
  for (RankSteps& one : ranks) one.host = one.rank / 2;
  return find_straggler(ranks);
}

TEST(Straggler, RanksOfAHostThatAreLateAlikeAreNamedTogether) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const auto found = searched_on_hosts({.seed = seed, .plant = [](int rank, int, StepRecord& record) {
                                            if (rank >= 2) add(record, Bar::kForward, milliseconds(8));
                                          }});
    ASSERT_TRUE(found);
    EXPECT_EQ(found->rank, -1);
    EXPECT_EQ(found->host, (std::vector{2, 3}));
    EXPECT_GT(found->share, 0.8);
    EXPECT_EQ(found->when, When::kAlways);
    EXPECT_EQ(found->cause, Cause::kBar);
    EXPECT_EQ(found->bar, Bar::kForward);
    EXPECT_NEAR(static_cast<double>(found->excess.count()), 8e6, 0.8e6);
  }
}

TEST(Straggler, ALateRankOfAHostIsNamedAlone) {
  const auto found = searched_on_hosts({.plant = [](int rank, int, StepRecord& record) {
    if (rank == 3) add(record, Bar::kInput, milliseconds(8));
  }});
  ASSERT_TRUE(found);
  EXPECT_EQ(found->rank, 3);
  EXPECT_TRUE(found->host.empty());
}

TEST(Straggler, RanksOfDifferentHostsAreNoHost) {
  const auto found = searched_on_hosts({.plant = [](int rank, int, StepRecord& record) {
    if (rank % 2 == 1) add(record, Bar::kForward, milliseconds(8));
  }});
  ASSERT_TRUE(found);
  EXPECT_TRUE(found->host.empty());
}

// 200 random delays: rank in 99 % of them, when and what in 95 %, the size within 10 %.
TEST(Straggler, NamesRankTimeAndCauseOfRandomDelays) {
  constexpr std::array kPlanted{Bar::kInput,     Bar::kForward,    Bar::kBackward, Bar::kAfterBackward,
                                Bar::kOptimizer, Bar::kCheckpoint, Bar::kBetween};
  int right_rank = 0, right_class = 0, right_size = 0;
  constexpr int kJobs = 200;
  for (std::uint64_t seed = 1; seed <= kJobs; ++seed) {
    std::mt19937_64 random(seed);
    const int ranks = 2 + static_cast<int>(random() % 15),
              late = static_cast<int>(random() % static_cast<unsigned>(ranks));
    const Bar bar = kPlanted[random() % kPlanted.size()];
    const auto when = static_cast<When>(random() % 4);
    const int period = 5 + static_cast<int>(random() % 20), phase = static_cast<int>(random() % 5);
    const nanoseconds delay = microseconds(8'000 + random() % 40'000) * (when == When::kAlways ? 1 : 2);
    std::vector<bool> at(128);
    for (std::size_t step = 0; step < at.size(); ++step) at[step] = random() % 10 == 0;
    const Job job{ranks, 128, seed, 0.01, [&](int rank, int step, StepRecord& record) {
                    record.work = 1 + static_cast<std::int64_t>(random() % 100);
                    if (rank != late) return;
                    if (when == When::kWithData) return add(record, bar, delay * record.work / 50);
                    const bool is_late = when == When::kAlways     ? true
                                         : when == When::kPeriodic ? step % period == phase
                                                                   : at[static_cast<std::size_t>(step)];
                    if (is_late) add(record, bar, delay);
                  }};
    const auto found = searched(job);
    if (!found || found->rank != late) continue;
    ++right_rank;
    const bool is_class = found->when == when && found->cause == Cause::kBar && found->bar == bar;
    right_class += is_class && (when != When::kPeriodic || found->period == period) ? 1 : 0;
    const double size = static_cast<double>(found->excess.count()) / static_cast<double>(delay.count());
    right_size += when == When::kWithData || std::abs(size - 1) <= 0.1 ? 1 : 0;
  }
  EXPECT_GE(right_rank, kJobs * 99 / 100);
  EXPECT_GE(right_class, kJobs * 95 / 100);
  EXPECT_GE(right_size, kJobs * 95 / 100);
  RecordProperty("right",
                 std::to_string(right_rank) + " " + std::to_string(right_class) + " " + std::to_string(right_size));
}

}  // namespace
}  // namespace horo
