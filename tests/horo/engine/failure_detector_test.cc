// Silent and suspected ranks, with a simulated clock.

#include "horo/engine/failure_detector.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace horo {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;

// The detector of one of four ranks. The peers in `answers` answer beats.
class Watch {
 public:
  explicit Watch(int rank, int min_np = 0)
      : detector(config_of(rank, min_np), {"rank 0", "rank 1 (host-b, pid 7)", "rank 2", "rank 3"}) {
    for (int peer = 0; peer < 4; ++peer) {
      if (peer != rank && (rank == 0 || peer == 0)) answers.push_back(peer);
    }
  }

  // Advances the clock in ticks of 10 ms; stops at a verdict.
  std::optional<Verdict> pass(Duration time, bool in_flight = true) {
    for (const TimePoint end = now + time; now < end; now += milliseconds(10)) {
      const FailureDetector::Advice advice = detector.tick(in_flight, now);
      if (advice.verdict) return advice.verdict;
      asked += advice.ask ? 1 : 0;
      for (const int peer : answers) {
        if (advice.ask) detector.heard(peer);
      }
    }
    return std::nullopt;
  }

  FailureDetector detector;
  std::vector<int> answers;
  int asked = 0;
  TimePoint now{seconds(1'000)};

 private:
  static Config config_of(int rank, int min_np) {
    Config config;
    config.min_np = min_np;
    config.rank = rank;
    config.size = 4;
    return config;
  }
};

TEST(FailureDetector, ASilentRankIsLostAfterTheDeadline) {
  Watch watch(0);
  std::erase(watch.answers, 1);
  EXPECT_FALSE(watch.pass(seconds(29)));
  const auto verdict = watch.pass(seconds(3));
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->origin, 1);
  EXPECT_THAT(verdict->text, HasSubstr("rank 1 (host-b, pid 7) gave no sign of life for 30.0 s"));
}

TEST(FailureDetector, NoRankIsLostWhileAllAnswer) {
  Watch watch(0);
  EXPECT_FALSE(watch.pass(seconds(300)));
  EXPECT_LE(watch.asked, 300);
}

TEST(FailureDetector, ARankThatTheJobMissesTooIsLostAfterAFewBeats) {
  Watch watch(0);
  watch.detector.missed({1, 2});
  EXPECT_FALSE(watch.pass(seconds(100)));  // both answer
  std::erase(watch.answers, 2);
  EXPECT_FALSE(watch.pass(seconds(100), false));  // nothing is in flight
  const auto verdict = watch.pass(seconds(5));
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->origin, 2);
  EXPECT_THAT(verdict->text, HasSubstr("horo run does not hear it either"));
}

TEST(FailureDetector, ARankThatIsBackIsMissedNoLonger) {
  Watch watch(0);
  watch.detector.missed({1});
  watch.detector.missed({});
  std::erase(watch.answers, 1);
  EXPECT_FALSE(watch.pass(seconds(20)));
}

TEST(FailureDetector, APauseOfThisProcessIsNoSilenceOfTheOthers) {
  Watch watch(0);
  watch.answers.clear();
  watch.detector.missed({1});
  EXPECT_FALSE(watch.pass(milliseconds(2'400)));
  watch.now += seconds(100);
  watch.detector.was_paused(watch.now);
  EXPECT_FALSE(watch.pass(milliseconds(2'400)));
}

TEST(FailureDetector, AnIdleJobMayPauseForAnyTime) {
  Watch watch(0);
  watch.answers.clear();
  EXPECT_FALSE(watch.pass(seconds(300), false));
  EXPECT_EQ(watch.asked, 0);
}

TEST(FailureDetector, ShortCollectivesCauseNoBeats) {
  Watch watch(0);
  for (int i = 0; i < 1'000; ++i) {
    watch.pass(milliseconds(300), true);
    watch.pass(milliseconds(20), false);
  }
  EXPECT_EQ(watch.asked, 0);
}

TEST(FailureDetector, RankZeroWatchesForARankThatAsks) {
  Watch watch(0);
  std::erase(watch.answers, 3);
  std::optional<Verdict> verdict;
  for (int i = 0; i < 40 && !verdict; ++i) {
    watch.detector.asked(watch.now);
    verdict = watch.pass(seconds(1), false);
  }
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->origin, 3);
}

TEST(FailureDetector, ARankThatWasStoppedItselfNamesNoOther) {
  Watch watch(2);
  watch.pass(seconds(3));
  watch.now += seconds(600);
  EXPECT_FALSE(watch.pass(seconds(60)));
}

TEST(FailureDetector, ASilentRankIsNamedInsteadOfALateNeighbour) {
  Watch watch(0);
  std::erase(watch.answers, 1);
  watch.pass(seconds(6));
  watch.detector.suspect({3, 2, Evidence::kLate, "rank 3 waited for rank 2"}, watch.now);
  watch.detector.suspect({2, 1, Evidence::kLate, "rank 2 waited for rank 1"}, watch.now);
  const auto verdict = watch.pass(seconds(1));
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->origin, 1);
  EXPECT_THAT(verdict->text, HasSubstr("gave no sign of life"));
}

TEST(FailureDetector, ALateRankThatAnswersIsNamedAsLate) {
  Watch watch(0);
  watch.pass(seconds(6));
  watch.detector.suspect({3, 2, Evidence::kLate, "rank 3 waited for rank 2"}, watch.now);
  watch.detector.suspect({2, 1, Evidence::kLate, "rank 2 waited for rank 1"}, watch.now);
  const auto verdict = watch.pass(seconds(1));
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->origin, 1) << "rank 2 waited for rank 1";
  EXPECT_THAT(verdict->text, HasSubstr("answers, but does not send"));
}

TEST(FailureDetector, OtherRanksNameASilentRankZeroAndNotEachOther) {
  Watch watch(2);
  watch.answers.clear();
  watch.pass(seconds(6));
  watch.detector.suspect({2, 3, Evidence::kLate, "rank 2 waited for rank 3"}, watch.now);
  EXPECT_FALSE(watch.pass(milliseconds(1'400))) << "rank 0 may still decide";
  const auto verdict = watch.pass(milliseconds(200));
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->origin, 0);
}

TEST(FailureDetector, AnEndedProcessIsStrongerEvidenceThanSilence) {
  Watch watch(0);
  std::erase(watch.answers, 1);
  watch.pass(seconds(6));
  watch.detector.suspect({2, 3, Evidence::kGone, "its process has ended"}, watch.now);
  const auto verdict = watch.pass(seconds(1));
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->origin, 3);
}

TEST(FailureDetector, ACertainDeathIsNamedAtTheNextTick) {
  Watch watch(0);
  watch.detector.suspect({2, 3, Evidence::kDied, "it died"}, watch.now);
  const FailureDetector::Advice advice = watch.detector.tick(true, watch.now);
  EXPECT_FALSE(advice.verdict) << "a message of that rank may be unread";
  EXPECT_LE(advice.next_tick, watch.now);
  const auto verdict = watch.pass(milliseconds(20));
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->text, "rank 3 is lost: it died");
}

TEST(FailureDetector, RankZeroChoosesAmongDeaths) {
  Watch watch(2);
  watch.detector.suspect({2, 1, Evidence::kDied, "it died"}, watch.now);
  EXPECT_FALSE(watch.pass(milliseconds(1'400)));
  const auto verdict = watch.pass(milliseconds(200));
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->text, "rank 1 (host-b, pid 7) is lost: it died");
}

TEST(FailureDetector, EveryRankNamesADeadRankZero) {
  Watch watch(2);
  watch.detector.suspect({2, 1, Evidence::kDied, "it died"}, watch.now);
  watch.detector.suspect({2, 0, Evidence::kDied, "it died"}, watch.now);
  const auto verdict = watch.pass(milliseconds(20));
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->origin, 0);
}

// As of NCCL's network. An elastic job may go on with all ranks.
TEST(FailureDetector, AnErrorOfNoKnownRankIsThatOfTheRankThatHadIt) {
  for (const int min_np : {0, 2}) {
    Watch watch(0, min_np);
    watch.detector.suspect({2, -1, Evidence::kBroken, "rank 2: an error"}, watch.now);
    EXPECT_FALSE(watch.pass(milliseconds(480)));
    const auto verdict = watch.pass(milliseconds(40));
    ASSERT_TRUE(verdict);
    EXPECT_EQ(verdict->origin, min_np > 0 ? -1 : 2);
    EXPECT_EQ(verdict->text, "rank 2: an error");
  }
}

TEST(FailureDetector, ABrokenConnectionIsTheCauseOfSuchErrors) {
  Watch watch(0);
  watch.detector.suspect({2, -1, Evidence::kBroken, "rank 2: an error"}, watch.now);
  watch.detector.suspect({0, 3, Evidence::kBroken, "the connection to rank 3 broke"}, watch.now);
  const auto verdict = watch.pass(seconds(1));
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->origin, 3);
}

TEST(FailureDetector, ARankThatLeftInGoodOrderIsNotLost) {
  Watch watch(0);
  std::erase(watch.answers, 1);
  watch.detector.left(1);
  watch.detector.suspect({2, 1, Evidence::kGone, "its process has ended"}, watch.now);
  EXPECT_FALSE(watch.pass(seconds(100)));
}

}  // namespace
}  // namespace horo
