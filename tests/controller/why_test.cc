// A person asks what the ranks wait for: rank 0 asks all of them, once, and tells what it knows.
#include "controller/wait_report.h"
#include "horo/base/error.h"
#include "tests/controller/ranks.h"

namespace horo {
namespace {

using std::chrono::milliseconds;

WaitReport report_of(Ranks& ranks) {
  return decode_wait_report(ranks[0].explanations().back().report);
}

void ask(Ranks& ranks, std::uint64_t question = 1) {
  ranks[0].post(AskedWhy{question, "oldest"});
  ranks.settle();
}

TEST(Why, TheAnswerNamesBothSidesTheTensorsAndTheTime) {
  Ranks ranks(3);
  ranks[1].set_call_sites("evaluate.py:7 score");
  for (const int rank : {0, 2}) {
    ranks[rank].set_call_sites("train.py:60 main");
    for (const char* name : {"a", "b", "c", "d"}) ranks[rank].submit(gradient(name));
  }
  ranks.settle();
  ranks.fire_timers_until(ranks.now + 2s);
  ask(ranks, 7);
  ASSERT_EQ(ranks[0].explanations().size(), 1U);
  EXPECT_EQ(ranks[0].explanations()[0].question, 7U);
  const WaitReport report = report_of(ranks);
  ASSERT_EQ(report.waits.size(), 1U);
  EXPECT_THAT(report.waits[0].names, ElementsAre("a", "b", "c"));
  EXPECT_EQ(report.waits[0].more, 1U);
  EXPECT_THAT(report.waits[0].submitted, ElementsAre(0, 2));
  EXPECT_THAT(report.waits[0].missing, ElementsAre(1));
  EXPECT_EQ(report.waits[0].waited, milliseconds(2'000));
  ASSERT_EQ(report.sites.size(), 2U);
  EXPECT_THAT(report.sites[0].ranks, ElementsAre(0, 2));
  EXPECT_EQ(report.sites[1].text, "evaluate.py:7 score");
  EXPECT_THAT(report.deadlocked, IsEmpty());
  EXPECT_EQ(report.in_flight, "oldest");
  EXPECT_THAT(ranks[0].warnings(), IsEmpty());
}

TEST(Why, AQuestionChangesNothingAndIsAnsweredEachTime) {
  Ranks ranks(2);
  const std::vector<TensorSpec> specs = {gradient("a"), gradient("b")};
  learn_plans(ranks, specs);
  for (const std::uint64_t question : {1U, 2U, 3U}) {
    ask(ranks, question);
    ASSERT_EQ(ranks[0].explanations().size(), question);
    EXPECT_EQ(ranks[0].explanations().back().question, question);
    EXPECT_THAT(report_of(ranks).waits, IsEmpty());
    EXPECT_EQ(report_of(ranks).sites.size(), 1U);
  }
  ranks.step(specs);
  EXPECT_TRUE(ranks[1].stream().back().known);
  ranks[1].post(AskedWhy{4, ""});  // no leader
  ranks.settle();
  EXPECT_THAT(ranks[1].explanations(), IsEmpty());
}

TEST(Why, RanksThatWaitForOneAnotherAreNamedAtOnce) {
  Ranks ranks(3);
  const auto submit_and_wait = [&](int rank, const char* name) {
    ranks.submit_on({rank}, {gradient(name)});
    ranks[rank].begin_wait(ranks.now);
  };
  submit_and_wait(0, "x");
  submit_and_wait(1, "y");
  ask(ranks);
  EXPECT_THAT(report_of(ranks).deadlocked, IsEmpty()) << "rank 2 may submit both";
  submit_and_wait(2, "y");
  ask(ranks, 2);
  EXPECT_THAT(report_of(ranks).deadlocked, ElementsAre(0, 1, 2));
  EXPECT_EQ(report_of(ranks).waits.size(), 2U);
}

TEST(Why, ARankThatDoesNotAnswerIsNamedAfterItsTime) {
  Ranks ranks(3);
  ranks[1].set_call_sites(std::nullopt);
  ask(ranks);
  EXPECT_THAT(ranks[0].explanations(), IsEmpty());
  ranks.fire_timers_until(ranks.now + 1s);
  ASSERT_EQ(ranks[0].explanations().size(), 1U);
  const WaitReport report = report_of(ranks);
  ASSERT_EQ(report.sites.size(), 2U);
  EXPECT_THAT(report.sites[1].ranks, ElementsAre(1));
  EXPECT_FALSE(report.sites[1].answered);
}

TEST(Why, AJoinIsAWait) {
  Ranks ranks(2);
  ranks[1].join(0);
  ranks.settle();
  ask(ranks);
  ASSERT_EQ(report_of(ranks).waits.size(), 1U);
  EXPECT_TRUE(report_of(ranks).waits[0].is_join);
  EXPECT_THAT(report_of(ranks).waits[0].missing, ElementsAre(0));
}

TEST(Why, AWorldOfOneRankAnswersAlone) {
  Ranks ranks(1);
  ask(ranks);
  ASSERT_EQ(ranks[0].explanations().size(), 1U);
  EXPECT_EQ(report_of(ranks).size, 1);
}

TEST(Why, AReportIsShortenedByItsCallSitesAndDamageIsRefused) {
  WaitReport report;
  report.size = 40;
  for (int rank = 0; rank < 20; ++rank) report.sites.push_back({{rank}, true, std::string(2'000, 'x')});
  const std::vector<std::byte> bytes = encode(report, 10'000);
  EXPECT_LE(bytes.size(), 10'000U);
  EXPECT_EQ(decode_wait_report(bytes).sites.size(), 4U);
  for (std::size_t size = 0; size < bytes.size(); size += 7) {
    EXPECT_THROW(decode_wait_report(std::span(bytes).first(size)), ProtocolError);
  }
}

}  // namespace
}  // namespace horo
