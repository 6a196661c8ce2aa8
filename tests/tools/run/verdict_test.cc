// The rank that failed first is found for any order in which the ends are observed.
#include "tools/horo/run/verdict.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>

namespace horo::tools {
namespace {

using testing::HasSubstr;
using testing::Not;

int exited(int code) {
  return code << 8;
}

RankEnd end_of(int rank, int status, const std::string& exception = "") {
  RankEnd end;
  end.rank = rank;
  end.status = status;
  if (exception.empty()) return end;
  for (const std::string& line :
       {std::string("Traceback (most recent call last):"), std::string("  File"), exception}) {
    end.errors.add(line + "\n");
  }
  return end;
}

RankEnd lost(int rank, int peer) {
  return end_of(rank, exited(1), "horo.errors.PeerLost: rank " + std::to_string(peer) + " (host b) died");
}

// Expects one verdict for all orders of these ends, and returns it.
ExitVerdict judged(std::vector<RankEnd> ends, bool is_elastic = false) {
  std::vector<int> places;
  for (std::size_t i = 0; i < ends.size(); ++i) places.push_back(static_cast<int>(i));
  std::optional<ExitVerdict> first;
  do {
    for (std::size_t i = 0; i < ends.size(); ++i) ends[i].place = places[i];
    const ExitVerdict verdict = exit_verdict(ends, "horo run", "here", is_elastic);
    if (!first) first = verdict;
    EXPECT_EQ(verdict.text, first->text);
    EXPECT_EQ(verdict.code, first->code);
  } while (std::next_permutation(places.begin(), places.end()));
  return *first;
}

TEST(ExitVerdict, NoTextWithoutAFailure) {
  const ExitVerdict verdict = judged({end_of(0, 0), end_of(1, 0)});
  EXPECT_EQ(verdict.code, 0);
  EXPECT_EQ(verdict.text, "");
}

TEST(ExitVerdict, AKilledRankRanksBeforeThoseThatLostIt) {
  const ExitVerdict verdict = judged({lost(0, 2), lost(1, 2), end_of(2, SIGKILL), lost(3, 2)});
  EXPECT_EQ(verdict.code, 128 + SIGKILL);
  EXPECT_THAT(verdict.text, HasSubstr("rank 2 on host here failed first: signal 9 (SIGKILL)"));
  EXPECT_THAT(verdict.text, HasSubstr("ranks 0, 1, 3: horo.errors.PeerLost: rank 2 (host b) died (exit code 1)"));
}

TEST(ExitVerdict, AnotherExceptionRanksBeforePeerLost) {
  const ExitVerdict verdict = judged({lost(0, 1), end_of(1, exited(1), "ValueError: nan"), lost(2, 1)});
  EXPECT_THAT(verdict.text, HasSubstr("rank 1 on host here failed first: ValueError: nan (exit code 1)"));
}

RankEnd left_alone(int rank, int peer) {
  return end_of(rank, exited(1),
                "horo.errors.Mismatch: tensor 'loss': rank " + std::to_string(peer) +
                    " has left (horo.shutdown, or the end of the program) and will not submit it.");
}

TEST(ExitVerdict, ARankThatExitsInGoodOrderRanksBeforeThoseThatNeededIt) {
  const ExitVerdict verdict = judged({left_alone(0, 1), end_of(1, exited(3)), left_alone(2, 1)});
  EXPECT_EQ(verdict.code, 3);
  EXPECT_THAT(verdict.text, HasSubstr("rank 1 on host here failed first: exit code 3"));
}

TEST(ExitVerdict, ARankThatLeavesWithSuccessIsNamedAndTheCodeIsThatOfTheOthers) {
  const ExitVerdict verdict = judged({left_alone(0, 1), end_of(1, 0), lost(2, 0)});
  EXPECT_EQ(verdict.code, 1);
  EXPECT_THAT(verdict.text, HasSubstr("rank 1 on host here ended first: exit code 0, while other ranks still needed"));
}

TEST(ExitVerdict, PeersThatExitSilentlyRankAfterASignal) {
  const ExitVerdict verdict = judged({end_of(0, exited(3)), end_of(1, SIGSEGV), end_of(2, exited(3))});
  EXPECT_EQ(verdict.code, 128 + SIGSEGV);
  EXPECT_THAT(verdict.text, HasSubstr("rank 1 on host here failed first: signal 11 (SIGSEGV)"));
}

TEST(ExitVerdict, PeerLostErrorsCountMoreThanASignal) {
  const ExitVerdict verdict = judged({lost(0, 1), end_of(1, exited(7)), end_of(2, SIGABRT)});
  EXPECT_EQ(verdict.code, 7);
}

TEST(ExitVerdict, ARankThatAbortedBecauseItLostAPeerIsNotTheFirst) {
  RankEnd aborted = end_of(0, SIGABRT);
  aborted.errors.add("terminate called after throwing an instance of 'horo::PeerLost'\n");
  aborted.errors.add("  what():  rank 0: rank 1 was lost: it broke off\n");
  EXPECT_EQ(judged({aborted, end_of(1, exited(4)), lost(2, 1)}).code, 4);
}

TEST(ExitVerdict, ARankThatEndedCleanlyTooEarlyIsNamed) {
  const ExitVerdict verdict = judged({lost(0, 1), end_of(1, 0), lost(2, 1)});
  EXPECT_EQ(verdict.code, 1);
  EXPECT_THAT(verdict.text,
              HasSubstr("rank 1 on host here ended first: exit code 0, while other ranks still needed it"));
}

TEST(ExitVerdict, AHangingRankThatHadToBeKilledIsNamed) {
  RankEnd stopped = end_of(2, SIGKILL);
  stopped.was_terminated = true;
  const ExitVerdict verdict = judged({lost(0, 2), lost(1, 2), stopped});
  EXPECT_EQ(verdict.code, 1);
  EXPECT_THAT(verdict.text, HasSubstr("rank 2 on host here was lost first: it did not end by itself"));
}

TEST(ExitVerdict, ARankOfAnotherHostIsNamed) {
  const ExitVerdict verdict = judged({lost(0, 5), lost(1, 5)});
  EXPECT_EQ(verdict.code, 1);
  EXPECT_THAT(verdict.text, HasSubstr("rank 5, which runs on another host, was lost first"));
  EXPECT_THAT(verdict.text, HasSubstr("ranks 0, 1: "));
}

TEST(ExitVerdict, ARankThatReportsALostPeerIsNotBlamed) {
  const ExitVerdict verdict = judged({lost(0, 1), lost(1, 2), lost(3, 1), end_of(2, exited(9))});
  EXPECT_EQ(verdict.code, 9);
}

TEST(ExitVerdict, RanksEndedBySigtermHaveNotFailed) {
  RankEnd told = end_of(1, SIGTERM);
  told.was_terminated = true;
  const ExitVerdict verdict = judged({end_of(0, exited(3)), told});
  EXPECT_EQ(verdict.code, 3);
  EXPECT_THAT(verdict.text, HasSubstr("rank 1: did not end by itself; signal 15 (SIGTERM) after SIGTERM"));
}

TEST(ExitVerdict, AThousandRanksMakeAShortText) {
  std::vector<RankEnd> ends{end_of(0, SIGKILL)};
  for (int rank = 1; rank < 1000; ++rank) {
    ends.push_back(end_of(rank, exited(1), "horo.errors.PeerLost: rank " + std::to_string(rank) + ": rank 0 died"));
  }
  const ExitVerdict verdict = exit_verdict(ends, "horo run", "here");
  EXPECT_THAT(verdict.text, HasSubstr("and 983 more"));
  EXPECT_LT(std::count(verdict.text.begin(), verdict.text.end(), '\n'), 25);
}

TEST(ExitVerdict, StderrIsQuotedOrElseStdout) {
  RankEnd end = end_of(0, exited(1));
  end.output.add("printed\n");
  EXPECT_THAT(judged({end}).text, HasSubstr("    | printed\n"));
  end.errors.add("complained\n");
  EXPECT_THAT(judged({end}).text, HasSubstr("    | complained\n"));
  EXPECT_THAT(judged({end}).text, Not(HasSubstr("printed")));
}

TEST(ExitVerdict, ARankThatAnElasticJobSurvivedHasNotFailed) {
  RankEnd survived = end_of(2, SIGKILL);
  survived.was_survived = true;
  EXPECT_EQ(judged({end_of(0, 0), end_of(1, 0), survived}, true).code, 0);
  const ExitVerdict verdict = judged({lost(0, 2), end_of(1, exited(3)), survived}, true);
  EXPECT_EQ(verdict.code, 3);
  EXPECT_THAT(verdict.text, HasSubstr("rank 1 on host here failed first: exit code 3"));
  EXPECT_THAT(verdict.text, HasSubstr("rank 2: signal 9 (SIGKILL); the job went on without it"));
}

// The numbers in errors are those of an epoch, and no rank ends by the end of another one.
TEST(ExitVerdict, TheEarliestFailureOfAnElasticJobCounts) {
  std::vector<RankEnd> ends{lost(0, 1), end_of(1, 0), end_of(2, exited(3)), end_of(3, SIGKILL)};
  for (int rank = 0; rank < 4; ++rank) ends[static_cast<std::size_t>(rank)].place = rank;
  EXPECT_EQ(exit_verdict(ends, "horo run", "here", true).code, 3);
  std::swap(ends[2].place, ends[3].place);
  EXPECT_EQ(exit_verdict(ends, "horo run", "here", true).code, 128 + SIGKILL);
}

TEST(ExitVerdict, ARankThatHadNotJoinedDecidesNothing) {
  RankEnd joiner = end_of(4, exited(9));
  joiner.was_joining = true;
  EXPECT_EQ(judged({end_of(0, exited(0)), joiner}, true).code, 0);
  const ExitVerdict verdict = judged({end_of(0, exited(3)), joiner}, true);
  EXPECT_EQ(verdict.code, 3);
  EXPECT_THAT(verdict.text, HasSubstr("rank 4: exit code 9; it had not joined the job\n"));
}

}  // namespace
}  // namespace horo::tools
