// The effects of the leader's stream: a rank that has not applied the last messages of an epoch catches up with them.
#include "tests/controller/ranks.h"

namespace horo {
namespace {

CoordinatorConfig elastic_config() {
  CoordinatorConfig config;
  config.elastic = true;
  return config;
}

// Rank 1 reports, and the epoch ends when rank 0 alone has applied the answer.
void end_epoch_after_report(Ranks& ranks) {
  ranks.deliver(1, ranks.turn(1));
  ranks.turn(0);
}

template <class Wanted>
std::vector<Wanted> catch_up(EngineModel& behind, EngineModel& ahead) {
  Actions actions;
  behind.coordinator().catch_up(ahead.coordinator().effects().effects, actions);
  std::vector<Wanted> wanted;
  for (const Action& action : actions) {
    if (const auto* one = std::get_if<Wanted>(&action)) wanted.push_back(*one);
  }
  return wanted;
}

TEST(Effects, WhatAReleasedPlanSkipsEndsOnARankThatIsBehind) {
  Ranks ranks(2, elastic_config());
  const std::vector<TensorSpec> specs = {gradient("a"), gradient("b"), gradient("c")};
  learn_plans(ranks, specs);
  for (const int rank : {0, 1}) {
    ranks[rank].submit(specs[0], true);
    ranks[rank].submit(specs[1]);
    ranks[rank].submit(specs[2], true);
  }
  end_epoch_after_report(ranks);
  ASSERT_TRUE(ranks[0].stream().back().skipped);
  const std::vector<Skip> skips = catch_up<Skip>(ranks[1], ranks[0]);
  ASSERT_EQ(skips.size(), 1U);
  EXPECT_EQ(skips[0].keys.size(), 2U);
}

TEST(Effects, FiveThousandFailuresOfOneMessageReachARankThatIsBehind) {
  Ranks ranks(2, elastic_config());
  for (int i = 0; i < 5'000; ++i) {
    for (const int rank : {0, 1}) ranks[rank].submit(gradient("parameter " + std::to_string(i), {1 + rank}));
  }
  end_epoch_after_report(ranks);
  EXPECT_EQ(ranks[0].failures().size(), 5'000U);
  EXPECT_EQ(catch_up<Fail>(ranks[1], ranks[0]).size(), 5'000U);
}

TEST(Effects, TheOldestAreForgottenAboveALimit) {
  CoordinatorConfig config = elastic_config();
  config.kept_effects = 3;
  config.kept_effect_bytes = 2'000;
  Ranks ranks(2, config);
  const auto fail = [&](const std::string& name) {
    for (const int rank : {0, 1}) ranks[rank].submit(gradient(name, {1 + rank}));
    ranks.settle();
  };
  for (const char* name : {"a", "b", "c"}) fail(name);
  StreamEffects effects = ranks[1].coordinator().effects();
  EXPECT_EQ(effects.effects.size(), 3U);
  EXPECT_EQ(effects.forgotten, 0U);
  const std::uint64_t first = effects.effects.begin()->first;
  fail("d");
  effects = ranks[1].coordinator().effects();
  EXPECT_EQ(effects.effects.size(), 3U);
  EXPECT_EQ(effects.forgotten, first);
  fail(std::string(1'000, 'e'));
  effects = ranks[1].coordinator().effects();
  EXPECT_LT(effects.effects.size(), 3U);
  EXPECT_EQ(effects.forgotten + effects.effects.size(), effects.applied);
}

TEST(Effects, WhatIsSkippedOfARoundIsNotAnEffect) {
  Ranks ranks(2, elastic_config());
  std::vector<TensorSpec> specs = {gradient("a"), gradient("b")};
  for (TensorSpec& spec : specs) spec.round_stream = 5;
  learn_plans(ranks, specs);
  for (const int rank : {0, 1}) {
    ranks[rank].submit(specs[0], true);
    ranks[rank].submit(specs[1]);
  }
  end_epoch_after_report(ranks);
  ASSERT_TRUE(ranks[0].stream().back().skipped);
  EXPECT_THAT(catch_up<Skip>(ranks[1], ranks[0]), IsEmpty());
}

}  // namespace
}  // namespace horo
