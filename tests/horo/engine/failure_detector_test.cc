// Ranks that fall silent, with a clock of our own.

#include "horo/engine/failure_detector.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace horo {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;

// The detector of one of four ranks, whose peers answer when they are asked, but for those that are silent.
class Watch {
 public:
  explicit Watch(int rank) : detector(config_of(rank), {"rank 0", "rank 1 (host-b, pid 7)", "rank 2", "rank 3"}) {
    for (int peer = 0; peer < 4; ++peer) {
      if (peer != rank && (rank == 0 || peer == 0)) answers.push_back(peer);
    }
  }

  // Lets time go by in small looks; stops at a verdict.
  std::optional<Verdict> pass(Duration time, bool in_flight = true) {
    for (const TimePoint end = now + time; now < end; now += milliseconds(10)) {
      const FailureDetector::Advice advice = detector.look(in_flight, now);
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
  static Config config_of(int rank) {
    Config config;
    config.rank = rank;
    config.size = 4;
    return config;
  }
};

TEST(FailureDetector, ASilentRankIsNamedAfterTheDeadline) {
  Watch watch(0);
  std::erase(watch.answers, 1);
  EXPECT_FALSE(watch.pass(seconds(29)));
  const auto verdict = watch.pass(seconds(3));
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->origin, 1);
  EXPECT_THAT(verdict->text, HasSubstr("rank 1 (host-b, pid 7) gave no sign of life for 30.0 s"));
}

TEST(FailureDetector, NobodyIsNamedWhileAllAnswer) {
  Watch watch(0);
  EXPECT_FALSE(watch.pass(seconds(300)));
  EXPECT_LE(watch.asked, 300);
}

TEST(FailureDetector, AnIdleJobMayStandStillForEver) {
  Watch watch(0);
  watch.answers.clear();
  EXPECT_FALSE(watch.pass(seconds(300), false));
  EXPECT_EQ(watch.asked, 0);
}

TEST(FailureDetector, ShortCollectivesAskNobody) {
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

TEST(FailureDetector, ARankThatWasStoppedItselfBlamesNobody) {
  Watch watch(2);
  watch.pass(seconds(3));
  watch.now += seconds(600);
  EXPECT_FALSE(watch.pass(seconds(60)));
}

TEST(FailureDetector, ALateNeighbourIsInnocentIfSomebodyIsSilent) {
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

TEST(FailureDetector, ALateRankThatAnswersIsNamedAsSuch) {
  Watch watch(0);
  watch.pass(seconds(6));
  watch.detector.suspect({3, 2, Evidence::kLate, "rank 3 waited for rank 2"}, watch.now);
  watch.detector.suspect({2, 1, Evidence::kLate, "rank 2 waited for rank 1"}, watch.now);
  const auto verdict = watch.pass(seconds(1));
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->origin, 1) << "rank 2 waited itself";
  EXPECT_THAT(verdict->text, HasSubstr("answers, but does not send"));
}

TEST(FailureDetector, MembersOfASilentRankZeroNameItAndNotEachOther) {
  Watch watch(2);
  watch.answers.clear();
  watch.pass(seconds(6));
  watch.detector.suspect({2, 3, Evidence::kLate, "rank 2 waited for rank 3"}, watch.now);
  EXPECT_FALSE(watch.pass(milliseconds(1'400))) << "rank 0 may still judge";
  const auto verdict = watch.pass(milliseconds(200));
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->origin, 0);
}

TEST(FailureDetector, AnEndedProcessIsWorthMoreThanSilence) {
  Watch watch(0);
  std::erase(watch.answers, 1);
  watch.pass(seconds(6));
  watch.detector.suspect({2, 3, Evidence::kGone, "its process has ended"}, watch.now);
  const auto verdict = watch.pass(seconds(1));
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->origin, 3);
}

TEST(FailureDetector, ADeathThatIsCertainIsBelievedAtTheNextLook) {
  Watch watch(0);
  watch.detector.suspect({2, 3, Evidence::kDied, "it died"}, watch.now);
  const FailureDetector::Advice advice = watch.detector.look(true, watch.now);
  EXPECT_FALSE(advice.verdict) << "what it said itself may lie unread";
  EXPECT_LE(advice.again, watch.now);
  const auto verdict = watch.pass(milliseconds(20));
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->text, "rank 3 is lost: it died");
}

TEST(FailureDetector, WhichOfTwoDeathsItWasIsForRankZeroToSay) {
  Watch watch(2);
  watch.detector.suspect({2, 1, Evidence::kDied, "it died"}, watch.now);
  EXPECT_FALSE(watch.pass(milliseconds(1'400)));
  const auto verdict = watch.pass(milliseconds(200));
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->text, "rank 1 (host-b, pid 7) is lost: it died");
}

TEST(FailureDetector, TheDeathOfRankZeroIsBelievedByAllOthers) {
  Watch watch(2);
  watch.detector.suspect({2, 1, Evidence::kDied, "it died"}, watch.now);
  watch.detector.suspect({2, 0, Evidence::kDied, "it died"}, watch.now);
  const auto verdict = watch.pass(milliseconds(20));
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->origin, 0);
}

TEST(FailureDetector, WhoLeftInGoodOrderIsNotMissed) {
  Watch watch(0);
  std::erase(watch.answers, 1);
  watch.detector.left(1);
  watch.detector.suspect({2, 1, Evidence::kGone, "its process has ended"}, watch.now);
  EXPECT_FALSE(watch.pass(seconds(100)));
}

}  // namespace
}  // namespace horo
