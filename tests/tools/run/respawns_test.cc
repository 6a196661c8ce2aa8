// Respawns: which slots get a process again, and when. Time is an argument.
#include "tools/horo/run/respawns.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

namespace horo::tools {
namespace {

using std::chrono::minutes;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::IsEmpty;

constexpr Respawns::Growth kGrows{true, true}, kNotYet{false, true}, kPlain{false, false};

// A job whose time passes only by wait().
class Job {
 public:
  explicit Job(int slots, int restarts = 5) : respawns_({slots, restarts, seconds(600)}) { look(kPlain); }

  // The slots that get a process after this time, in which each deadline is kept.
  std::vector<int> wait(Duration time, const Respawns::Growth& growth = kGrows) {
    const TimePoint until = now_ + time;
    std::vector<int> started = look(growth);
    for (auto next = respawns_.next_deadline(); next && *next <= until; next = respawns_.next_deadline()) {
      now_ = *next;
      for (const int slot : look(growth)) started.push_back(slot);
    }
    now_ = until;
    for (const int slot : look(growth)) started.push_back(slot);
    return started;
  }
  std::vector<int> look(const Respawns::Growth& growth = kGrows) {
    std::vector<int> started;
    const Respawns::Decided decided = respawns_.pass_time(now_, growth);
    for (const auto& [slot, instead] : decided.starts) started.push_back(slot);
    lines.insert(lines.end(), decided.lines.begin(), decided.lines.end());
    return started;
  }
  // Until a process is started, a second at a time; at most an hour.
  int seconds_to_start() {
    for (int waited = 0; waited < 3'600; ++waited) {
      if (!look().empty()) return waited;
      now_ += seconds(1);
    }
    return -1;
  }
  void lose(int slot, const std::string& line = "", bool had_joined = true) {
    respawns_.on_lost({slot, static_cast<std::uint32_t>(slot), had_joined, "exit code 1", line}, now_);
  }
  bool take_back(int slot) { return respawns_.take_back(slot, now_); }
  void join(int slot) { respawns_.on_joined(slot, now_); }
  int grow_to(int slots) { return respawns_.grow_to(slots, now_); }
  Respawns& respawns() { return respawns_; }

  std::vector<std::string> lines;

 private:
  Respawns respawns_;
  TimePoint now_{};
};

TEST(Respawns, ALostRankIsReplacedAtOnce) {
  Job job(4);
  EXPECT_THAT(job.look(), IsEmpty());
  job.lose(2);
  EXPECT_THAT(job.look(), ElementsAre(2));
  EXPECT_THAT(job.wait(minutes(60)), IsEmpty());
}

TEST(Respawns, TheBackOffDoublesUpToAMinute) {
  Job job(1, 100);
  std::vector<int> waits;
  for (int i = 0; i < 9; ++i) {
    job.lose(0);
    waits.push_back(job.seconds_to_start());
    job.join(0);
  }
  EXPECT_THAT(waits, ElementsAre(0, 1, 2, 4, 8, 16, 32, 60, 60));
}

TEST(Respawns, TheBackOffBeginsAnewAfterTenMinutesOfMembership) {
  Job job(1, 100);
  for (int i = 0; i < 4; ++i) {
    job.lose(0);
    job.seconds_to_start();
  }
  job.join(0);
  job.wait(minutes(10));
  job.lose(0);
  EXPECT_EQ(job.seconds_to_start(), 0);
}

TEST(Respawns, ASlotRestsAfterItsRestartsAndTheOthersDoNot) {
  Job job(2);
  for (int i = 0; i < 5; ++i) {
    job.lose(1);
    EXPECT_GE(job.seconds_to_start(), 0);
    job.join(1);
  }
  job.lose(1);
  EXPECT_THAT(job.wait(seconds(599)), IsEmpty());
  EXPECT_THAT(job.lines,
              ElementsAre("rank 1 is not replaced for 600 s (--cool-down): 5 ranks were started in its place "
                          "within 10 min (--restarts)"));
  job.lose(0);
  EXPECT_THAT(job.look(), ElementsAre(0));
  EXPECT_THAT(job.wait(seconds(1)), ElementsAre(1));
}

TEST(Respawns, RestartsOfMoreThanTenMinutesAgoDoNotCount) {
  Job job(1, 2);
  for (int i = 0; i < 6; ++i) {
    job.lose(0);
    EXPECT_GE(job.seconds_to_start(), 0);
    job.join(0);
    job.wait(minutes(6));
  }
  EXPECT_THAT(job.lines, IsEmpty());
}

TEST(Respawns, ThreeJoinersThatFailAlikeStopIt) {
  Job job(4);
  job.lose(3);
  job.lose(2);
  EXPECT_THAT(job.look(), ElementsAre(2, 3));
  job.lose(2, "rank 4: no module named x", false);
  job.lose(3, "rank 5: no module named x", false);
  EXPECT_THAT(job.wait(seconds(2)), ElementsAre(2, 3));
  job.lose(2, "rank 6: no module named x", false);
  EXPECT_THAT(job.wait(minutes(60)), IsEmpty());
  EXPECT_THAT(job.lines,
              ElementsAre("no rank is started any more, because 3 ranks have failed alike before they joined: "
                          "exit code 1, rank 6: no module named x"));
  job.lose(0);
  EXPECT_THAT(job.wait(minutes(60)), IsEmpty());
}

TEST(Respawns, JoinersThatFailInOtherWaysOrBetweenJoinsDoNotStopIt) {
  Job job(1, 100);
  job.lose(0);
  for (const char* line : {"a", "b", "a", "b"}) {
    EXPECT_GE(job.seconds_to_start(), 0);
    job.lose(0, line, false);
  }
  EXPECT_GE(job.seconds_to_start(), 0);
  job.join(0);
  job.lose(0);
  EXPECT_GE(job.seconds_to_start(), 0);
  job.lose(0, "a", false);
  EXPECT_GE(job.seconds_to_start(), 0);
}

TEST(Respawns, NoRankIsStartedUnlessTheMembersCanGrow) {
  Job job(2);
  job.lose(1);
  EXPECT_THAT(job.wait(minutes(60), kNotYet), IsEmpty());
  EXPECT_THAT(job.look(), ElementsAre(1));
  EXPECT_THAT(job.lines, IsEmpty());
}

TEST(Respawns, APlainScriptIsToldOnce) {
  Job job(3);
  job.lose(2);
  EXPECT_THAT(job.wait(Respawns::kPlainPatience - seconds(1), kPlain), IsEmpty());
  EXPECT_THAT(job.lines, IsEmpty());
  job.wait(seconds(1), kPlain);
  job.lose(1);
  EXPECT_THAT(job.wait(minutes(60), kPlain), IsEmpty());
  EXPECT_THAT(job.lines,
              ElementsAre("rank 2 is not replaced: no rank is in a function of horo.elastic.run (docs/elastic.md)"));
}

TEST(Respawns, NoRestartsMeansNone) {
  Job job(2, 0);
  job.lose(1);
  EXPECT_THAT(job.wait(minutes(60)), IsEmpty());
  EXPECT_THAT(job.wait(minutes(60), kPlain), IsEmpty());
  EXPECT_THAT(job.lines, IsEmpty());
}

TEST(Respawns, AnEvictedProcessComesBackAsOftenAsItsSlotHasRestarts) {
  Job job(2, 2);
  EXPECT_TRUE(job.take_back(1));
  EXPECT_TRUE(job.take_back(1));
  EXPECT_FALSE(job.take_back(1));
  EXPECT_TRUE(job.take_back(0)) << "each slot has its own restarts";
  job.lose(1);
  EXPECT_THAT(job.wait(seconds(599)), IsEmpty()) << "the slot rests";
  EXPECT_THAT(job.wait(seconds(1)), ElementsAre(1));
  job.respawns().stop();
  EXPECT_FALSE(job.take_back(0));
  EXPECT_FALSE(Job(1, 0).take_back(0));
}

TEST(Respawns, ARankThatHasLeftInGoodOrderIsNotReplaced) {
  Job job(2);
  job.respawns().on_left(1);
  EXPECT_THAT(job.wait(minutes(60)), IsEmpty());
}

TEST(Respawns, NoRankIsStartedAfterAStop) {
  Job job(2);
  job.lose(0);
  job.respawns().stop();
  job.lose(1);
  EXPECT_THAT(job.wait(minutes(60)), IsEmpty());
  EXPECT_FALSE(job.respawns().next_deadline());
}

TEST(Respawns, TheUserStartsRanksInNewAndEmptySlots) {
  Job job(2, 0);
  job.lose(1);
  job.respawns().on_left(0);
  EXPECT_EQ(job.grow_to(4), 3);
  EXPECT_THAT(job.look(), ElementsAre(1, 2, 3));
  EXPECT_EQ(job.grow_to(4), 0);
  EXPECT_EQ(job.respawns().slots(), 4);
}

TEST(Respawns, TheUserEndsARestAndAStopByJoinersThatFailedAlike) {
  Job job(1);
  job.lose(0);
  for (int i = 0; i < 3; ++i) {
    EXPECT_GE(job.seconds_to_start(), 0);
    job.lose(0, "no", false);
  }
  EXPECT_THAT(job.wait(minutes(60)), IsEmpty());
  EXPECT_EQ(job.grow_to(1), 1);
  EXPECT_THAT(job.look(), ElementsAre(0));
}

}  // namespace
}  // namespace horo::tools
