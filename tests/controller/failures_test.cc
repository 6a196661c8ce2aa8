// Ranks that disagree, are missing, are late or leave: the tensor fails on all ranks, and later tensors run.
#include "controller/texts.h"
#include "horo/base/error.h"
#include "tests/controller/ranks.h"

namespace horo {
namespace {

struct Disagreement {
  const char* words;
  void (*change)(TensorSpec&);
};
constexpr Disagreement kDisagreements[] = {
    {"all_reduce on ranks 0, 2; barrier on rank 1", [](TensorSpec& s) { s.kind = CollectiveKind::kBarrier; }},
    {"float32 on ranks 0, 2; int32 on rank 1", [](TensorSpec& s) { s.dtype = DType::kInt32; }},
    {"average on ranks 0, 2; max on rank 1", [](TensorSpec& s) { s.op = ReduceOp::kMax; }},
    {"order canonical on ranks 0, 2; order fast on rank 1", [](TensorSpec& s) { s.order = Order::kFast; }},
    {"prescale 1 on ranks 0, 2; prescale 0.5 on rank 1", [](TensorSpec& s) { s.prescale = 0.5; }},
    {"postscale 1 on ranks 0, 2; postscale 2 on rank 1", [](TensorSpec& s) { s.postscale = 2; }},
    {"shape [256] on ranks 0, 2; shape [16, 16] on rank 1",
     [](TensorSpec& s) {
       s.shape = {16, 16};
     }},
    {"round stream 0 on ranks 0, 2; round stream 5 on rank 1", [](TensorSpec& s) { s.round_stream = 5; }},
    {"named on ranks 0, 2; unnamed on rank 1", [](TensorSpec& s) { s.once = true; }},
};

TEST(Mismatch, EveryKindFailsOnAllRanksWithTheSameTextAndLaterTensorsRun) {
  for (const Disagreement& disagreement : kDisagreements) {
    Ranks ranks(3);
    ranks.submit({gradient("y")});
    for (int rank = 0; rank < 3; ++rank) {
      TensorSpec spec = gradient("x");
      if (rank == 1) disagreement.change(spec);
      ranks[rank].submit(spec);
    }
    ranks.submit({gradient("y")});
    for (int rank = 0; rank < 3; ++rank) {
      ASSERT_EQ(ranks[rank].failures().size(), 1U) << disagreement.words;
      EXPECT_EQ(ranks[rank].failures()[0], ranks[0].failures()[0]);
      EXPECT_THAT(ranks[rank].failures()[0].text, HasSubstr(disagreement.words));
    }
    ranks.submit({gradient("x")});
    EXPECT_EQ(ranks[2].times("x") + ranks[2].times("y"), 3) << disagreement.words;
  }
}

TEST(Mismatch, DifferentRootsOfABroadcastAreNamed) {
  Ranks ranks(2);
  for (int rank = 0; rank < 2; ++rank) {
    TensorSpec spec = gradient("x");
    spec.kind = CollectiveKind::kBroadcast;
    spec.root = rank;
    ranks[rank].submit(spec);
  }
  ranks.settle();
  EXPECT_THAT(ranks[1].failures().at(0).text, HasSubstr("root 0 on rank 0; root 1 on rank 1"));
}

TEST(Mismatch, ANewSpecOnOneRankConflictsWithTheKnownIdOfTheOthers) {
  Ranks ranks(2);
  learn_plans(ranks, {gradient("x"), gradient("y")});
  ranks[0].submit(gradient("x"));
  ranks[1].submit(gradient("x", {7}));
  for (int rank = 0; rank < 2; ++rank) ranks[rank].submit(gradient("y"));
  ranks[1].nudge();
  ranks.settle();
  EXPECT_THAT(ranks[0].failures().at(0).text, HasSubstr("shape [256] on rank 0; shape [7] on rank 1"));
  EXPECT_EQ(ranks[1].failures(), ranks[0].failures());
  EXPECT_EQ(ranks[1].times("y"), 4);
  ranks.step({gradient("x"), gradient("y")});
  EXPECT_EQ(ranks[1].times("x"), 4);
}

TEST(Nudge, AMissingTensorDelaysNoRankThatWaitsForAnother) {
  Ranks ranks(3);
  const std::vector<TensorSpec> all = {gradient("a"), gradient("b"), gradient("c")};
  learn_plans(ranks, all);
  for (int rank = 0; rank < 3; ++rank) {
    ranks[rank].submit(gradient("a"));
    ranks[rank].submit(gradient("c"));
    if (rank == 2) ranks[rank].submit(gradient("b"));  // its plan is complete
  }
  ranks.settle();
  EXPECT_EQ(ranks[2].times("a"), 3);
  ranks[1].nudge();
  ranks.settle();
  EXPECT_EQ(ranks[2].times("a"), 4);
  EXPECT_EQ(ranks[2].times("c"), 4);
  EXPECT_EQ(ranks[2].times("b"), 3);
  for (int rank = 0; rank < 2; ++rank) ranks[rank].submit(gradient("b"));
  ranks.settle();
  EXPECT_EQ(ranks[2].times("b"), 4);
  EXPECT_EQ(ranks[2].stream(), ranks[0].stream());
}

TEST(Plans, TheTensorsOfADissolvedPlanAreInNoPlanForAHundredSteps) {
  const std::vector<TensorSpec> all = {gradient("a"), gradient("b")};
  Ranks ranks(2);
  const auto steps_until_planned = [&] {
    for (int step = 1; step <= 1000; ++step) {
      ranks.step(all);
      const Seen& last = ranks[0].stream().back();
      if (last.known && last.names.size() == all.size()) return step;
    }
    return 1000;
  };
  EXPECT_LT(steps_until_planned(), 5);
  for (int round = 0; round < 3; ++round) {
    for (int rank = 0; rank < 2; ++rank) ranks[rank].submit(all[0]), ranks[rank].nudge();
    ranks.settle();
    const int steps = steps_until_planned();
    EXPECT_GE(steps, 100) << round;
    EXPECT_LT(steps, 105) << round;
  }
}

TEST(Left, TensorsThatNeedTheRankFailAtOnce) {
  Ranks ranks(3);
  ranks[0].submit(gradient("x"));
  ranks[1].submit(gradient("x"));
  ranks.settle();
  ranks[0].post(RankLeft{2});
  ranks.settle();
  ranks[1].submit(gradient("y"));
  ranks.settle();
  EXPECT_THAT(ranks[0].failures(), ElementsAre(TensorFailure{"x", left_text("x", {2})}));
  EXPECT_THAT(ranks[1].failures(),
              ElementsAre(TensorFailure{"x", left_text("x", {2})}, TensorFailure{"y", left_text("y", {2})}));
}

TEST(Left, ATensorThatTheRankSubmittedBeforeIsReleased) {
  Ranks ranks(2);
  ranks[1].submit(gradient("x"));
  ranks.settle();
  ranks[0].post(RankLeft{1});
  ranks[0].submit(gradient("x"));
  ranks.settle();
  EXPECT_EQ(ranks[0].times("x"), 1);
}

TEST(Left, ThePlansOfTheRankFailTensorByTensor) {
  Ranks ranks(3);
  learn_plans(ranks, {gradient("a"), gradient("b")});
  ranks[1].submit(gradient("a"));
  ranks[1].submit(gradient("b"));
  ranks.settle();
  ranks[0].post(RankLeft{2});
  ranks.settle();
  EXPECT_EQ(ranks[1].failures().size(), 2U);
  ranks[0].submit(gradient("a"));
  ranks.settle();
  EXPECT_EQ(ranks[0].failures().size(), 1U);
}

TEST(Left, APlanThatTheRankCompletedFailsInTheNextStep) {
  Ranks ranks(2);
  const std::vector<TensorSpec> specs = {gradient("a"), gradient("b")};
  learn_plans(ranks, specs);
  for (const TensorSpec& spec : specs) ranks[1].submit(spec);
  ranks.settle();
  ranks[0].post(RankLeft{1});
  for (int time = 0; time < 2; ++time) {
    for (const TensorSpec& spec : specs) ranks[0].submit(spec);
    ranks.settle();
  }
  EXPECT_EQ(ranks[0].times("a"), 4);
  EXPECT_EQ(ranks[0].failures().size(), 2U);
}

TEST(Left, WithoutTheLeaderAllTensorsFail) {
  Ranks ranks(2);
  learn_plans(ranks, {gradient("a"), gradient("b")});
  ranks[1].submit(gradient("a"));
  ranks[1].submit(gradient("b"));
  ranks[1].submit(gradient("c"));
  ranks.turn(1);
  ranks[1].post(RankLeft{0});
  ranks[1].submit(gradient("d"));
  ranks.turn(1);
  ASSERT_EQ(ranks[1].failures().size(), 4U);
  EXPECT_EQ(ranks[1].failures()[3].text, left_text("d", {0}));
  EXPECT_TRUE(ranks[1].idle());
}

}  // namespace
}  // namespace horo
