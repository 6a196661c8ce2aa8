// Releases that concern some ranks wake no others.
#include "controller/held_messages.h"

#include "tests/controller/ranks.h"

namespace horo {
namespace {

// By rank, how many messages rank 0 has sent to it since the last call.
std::vector<int> take_sent(Ranks& ranks) {
  std::vector<int> counts(static_cast<std::size_t>(ranks.size()));
  for (const Send& send : std::exchange(ranks.sent, {})) ++counts[static_cast<std::size_t>(send.to)];
  return counts;
}

TEST(HeldMessages, AMessageOfTwoRanksIsSentToTheOthersBeforeWhatConcernsThem) {
  Ranks ranks(4);
  ranks.submit_on({1, 2}, {message(0, "x", 1, 2)});
  EXPECT_THAT(take_sent(ranks), ElementsAre(2, 1, 1, 0));
  ranks.submit_on({1, 2}, {message(0, "x", 1, 2)});
  ranks.submit_on({0, 3}, {message(0, "y", 3, 0)});
  EXPECT_THAT(take_sent(ranks), ElementsAre(3, 1, 1, 3)) << "rank 3 gets the two before, the others get none";
  ranks.submit({gradient("g")});
  EXPECT_THAT(take_sent(ranks), ElementsAre(3, 2, 2, 1));
  for (int rank = 0; rank < ranks.size(); ++rank) EXPECT_EQ(ranks[rank].stream().back().number, 4U) << rank;
}

TEST(HeldMessages, ARankIsSentThemWhenTheyAreMany) {
  HeldMessages held(3);
  Actions actions;
  for (std::size_t i = 1; i < HeldMessages::kMost; ++i) held.add({2, {}, false, true}, false, actions);
  EXPECT_THAT(actions, IsEmpty());
  held.add({2, {}, false, true}, false, actions);
  EXPECT_EQ(actions.size(), HeldMessages::kMost);
  held.add({2, {}, false, true}, false, actions);
  held.drop(2);
  held.add({2, {}, false, true}, true, actions);
  EXPECT_EQ(actions.size(), HeldMessages::kMost + 1) << "a rank that has left is sent nothing";
}

TEST(HeldMessages, AreSentWhenTheyAreLong) {
  HeldMessages held(2);
  Actions actions;
  held.add({1, std::vector<std::byte>(HeldMessages::kMostBytes), false, true}, false, actions);
  EXPECT_EQ(actions.size(), 1U);
}

TEST(HeldMessages, OnlyReleasesThatNameTheirRanksConcernSome) {
  const ReleaseTensors pair{{{{}, 0}}, {}, {1, 3}}, all{{{{}, 1}}, {}};
  EXPECT_THAT(concerned_by({{pair}}, 4).ranks(), ElementsAre(1, 3));
  EXPECT_TRUE(concerned_by({{pair, all}}, 4).full());
  EXPECT_TRUE(concerned_by({{pair, DissolvePlan{1}}}, 4).full());
}

}  // namespace
}  // namespace horo
