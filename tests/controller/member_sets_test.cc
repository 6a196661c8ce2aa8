// Process sets that their members alone add and remove: no other rank is waited for, members match by the name.
#include "controller/messages.h"
#include "horo/base/error.h"
#include "tests/controller/ranks.h"

namespace horo {
namespace {

void add_members_set_on(Ranks& ranks, const std::vector<int>& callers, const std::vector<int>& members,
                        const std::string& name) {
  for (const int rank : callers) ranks[rank].add_set_by_members(members, name);
  ranks.settle();
}

void add_members_set(Ranks& ranks, const std::vector<int>& members, const std::string& name) {
  add_members_set_on(ranks, members, members, name);
}

void remove_members_set(Ranks& ranks, const std::vector<int>& callers, std::uint32_t set, const std::string& name) {
  for (const int rank : callers) ranks[rank].remove_set_by_members(set, name);
  ranks.settle();
}

TEST(MemberSets, TheMembersAloneAddAndRemoveThem) {
  Ranks ranks(4);
  add_members_set(ranks, {1, 3}, "tp");
  for (int rank = 0; rank < 4; ++rank) EXPECT_THAT(ranks[rank].sets().at(1), ElementsAre(1, 3)) << rank;
  ranks.submit_on({1, 3}, {in_set(1, "x")});
  EXPECT_EQ(ranks[3].times("x"), 1);
  remove_members_set(ranks, {3}, 1, "tp");
  EXPECT_EQ(ranks[0].sets().size(), 2U) << "rank 1 has not removed it";
  remove_members_set(ranks, {1}, 1, "tp");
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(ranks[rank].sets().size(), 1U) << rank;
    EXPECT_TRUE(ranks[rank].idle() && ranks[rank].failures().empty()) << rank;
  }
}

TEST(MemberSets, AreMatchedByNameInAnyOrder) {
  Ranks ranks(3);
  ranks[0].add_set_by_members({0, 1}, "a");
  ranks[0].add_set_by_members({0, 1}, "b");
  ranks[1].add_set_by_members({0, 1}, "b");
  ranks[1].add_set_by_members({0, 1}, "a");
  ranks.settle();
  EXPECT_EQ(ranks[0].set_named("a"), ranks[1].set_named("a"));
  EXPECT_EQ(ranks[0].set_named("b"), ranks[2].set_named("b"));
  EXPECT_EQ(ranks[0].sets().size(), 3U);
}

TEST(MemberSets, MayHaveTheRanksOfOtherSets) {
  Ranks ranks(2);
  ranks.add_set({1}, "of all");
  add_members_set(ranks, {1}, "alone");
  add_members_set(ranks, {0, 1}, "world");
  EXPECT_EQ(ranks[0].sets().size(), 4U);
  ranks.add_set({0});
  EXPECT_EQ(ranks[1].sets().size(), 5U);
  EXPECT_TRUE(ranks[1].failures().empty());
}

TEST(MemberSets, ANameBelongsToOneSetAtATime) {
  Ranks ranks(3);
  add_members_set(ranks, {0, 1}, "tp");
  add_members_set(ranks, {1, 2}, "tp");
  ASSERT_EQ(ranks[2].failures().size(), 1U);
  EXPECT_THAT(ranks[2].failures()[0].text,
              StartsWith("a process set of that name exists already: process set 'tp'. Use that one, or remove"));
  remove_members_set(ranks, {0, 1}, 1, "tp");
  add_members_set(ranks, {1, 2}, "tp");
  EXPECT_THAT(ranks[0].sets().at(2), ElementsAre(1, 2));
}

TEST(MemberSets, MembersThatDisagreeAboutFlagsFail) {
  Ranks ranks(3);
  for (int rank = 0; rank < 2; ++rank) ranks[rank].add_set_by_members({0, 1}, "tp", rank == 1);
  ranks.settle();
  for (int rank = 0; rank < 2; ++rank) {
    ASSERT_EQ(ranks[rank].failures().size(), 1U);
    EXPECT_EQ(ranks[rank].failures()[0].text,
              "add_process_set of tensor 'add_process_set 'tp'': ranks disagree: shrinks=False on rank 0; shrinks=True "
              "on rank 1. Nothing was changed; make it equal on all ranks and submit it again");
  }
  add_members_set(ranks, {0, 1}, "tp");
  EXPECT_EQ(ranks[2].sets().size(), 2U);
}

// Rank 1 alone believes that rank 2 is a member. Rank 2 never makes the call, and holds up no other rank.
TEST(MemberSets, MembersThatDisagreeAboutRanksFailWithoutThoseThatAreNoMembersForAll) {
  Ranks ranks(3);
  ranks[0].add_set_by_members({0, 1}, "tp");
  ranks[1].add_set_by_members({0, 1, 2}, "tp");
  ranks.settle();
  for (int rank = 0; rank < 2; ++rank) {
    ASSERT_EQ(ranks[rank].failures().size(), 1U);
    EXPECT_THAT(ranks[rank].failures()[0].text,
                HasSubstr("ranks disagree: ranks [0, 1] on rank 0; ranks [0, 1, 2] on rank 1. Nothing"));
  }
  ranks[2].add_set_by_members({0, 1, 2}, "tp");
  ranks.settle();
  EXPECT_EQ(ranks[2].failures().at(0).text, ranks[1].failures()[0].text) << "a late member learns of the failure";
  add_members_set(ranks, {0, 1, 2}, "tp");
  EXPECT_EQ(ranks[2].sets().size(), 2U);
  EXPECT_TRUE(ranks[0].idle() && ranks[1].idle() && ranks[2].idle());
}

TEST(MemberSets, AFailureHasTheViewsOfAllRanksThatAreMembersForAll) {
  Ranks ranks(4);
  ranks[0].add_set_by_members({0, 1, 2}, "tp");
  ranks[1].add_set_by_members({0, 1, 2, 3}, "tp");
  ranks.settle();
  EXPECT_TRUE(ranks[0].failures().empty()) << "rank 2 has a view, too";
  ranks[2].add_set_by_members({0, 2}, "tp");
  ranks.settle();
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_THAT(ranks[rank].failures().at(0).text,
                HasSubstr("ranks [0, 1, 2] on rank 0; ranks [0, 1, 2, 3] on rank 1; ranks [0, 2] on rank 2"));
  }
}

TEST(MemberSets, AReportThatCrossesTheDisagreementFails) {
  Ranks ranks(3);
  ranks[0].add_set_by_members({0, 1}, "tp");
  ranks[1].add_set_by_members({0, 1, 2}, "tp");
  ranks.deliver(1, ranks.turn(1));
  const std::vector<Send> failure = ranks.turn(0);
  ranks[2].add_set_by_members({0, 1, 2}, "tp");
  ranks.deliver(2, ranks.turn(2));
  ranks.deliver(0, failure);
  ranks.settle();
  EXPECT_EQ(ranks[2].failures().size(), 1U);
  add_members_set(ranks, {0, 1, 2}, "tp");
  EXPECT_EQ(ranks[0].sets().size(), 2U);
}

TEST(MemberSets, AreLimitedTogetherWithThoseOfAllRanks) {
  CoordinatorConfig config;
  config.max_sets = 2;
  Ranks ranks(3, config);
  ranks.add_set({0, 1});
  add_members_set(ranks, {1, 2}, "a");
  add_members_set(ranks, {1, 2}, "b");
  EXPECT_EQ(ranks[2].failures().at(0).text,
            "process set 'b' of ranks 1, 2: 2 process sets exist, no more are allowed (HORO_MAX_PROCESS_SETS)");
  remove_members_set(ranks, {1, 2}, 2, "a");
  add_members_set(ranks, {1, 2}, "b");
  EXPECT_EQ(ranks[0].sets().size(), 3U);
}

TEST(MemberSets, AMemberThatIsMissingIsNamed) {
  CoordinatorConfig config;
  config.stall_warning = 100ms;
  config.stall_limit = 400ms;
  Ranks ranks(3, config);
  add_members_set_on(ranks, {2}, {1, 2}, "tp");
  ranks.fire_timers_until(ranks.now + 1s);
  EXPECT_THAT(ranks[2].failures().at(0).text,
              HasSubstr("'add_process_set 'tp'': submitted by rank 2, but not by rank 1 within 400 ms"));
  EXPECT_TRUE(ranks[0].failures().empty());
  EXPECT_EQ(ranks[1].warnings().size(), 1U);
}

TEST(MemberSets, AMemberThatHasLeftIsNamed) {
  Ranks ranks(3);
  ranks[0].post(RankLeft{1});
  add_members_set_on(ranks, {2}, {1, 2}, "tp");
  EXPECT_THAT(ranks[2].failures().at(0).text, HasSubstr("'add_process_set 'tp'': rank 1 has left"));
  add_members_set(ranks, {0, 2}, "pp");
  EXPECT_EQ(ranks[2].sets().size(), 2U);
}

TEST(MemberSets, ReportsThatNoMemberSendsAreRefused) {
  Ranks ranks(3);
  ranks.add_set({0, 1});
  const auto refusal = [&](const TensorSpec& spec) {
    UpMessage report;
    report.requests = {{spec, false}};
    Actions actions;
    try {
      ranks[0].coordinator().on(Received{2, encode(report)}, ranks.now, actions);
    } catch (const ProtocolError& error) {
      return std::string(error.what());
    }
    return std::string("taken");
  };
  TensorSpec spec;
  spec.by_members = spec.once = true;
  spec.channel = kMembersChannel;
  spec.name = spec.set_name = "tp";
  spec.kind = CollectiveKind::kAddSet;
  spec.shape = {0, 1};
  EXPECT_THAT(refusal(spec), HasSubstr("in which it has no part"));
  spec.shape = {2, 3};
  EXPECT_THAT(refusal(spec), HasSubstr("process set 'tp' of rank 3 in a world of 3"));
  spec.kind = CollectiveKind::kRemoveSet;
  for (const int set : {0, 1, 9}) {
    spec.shape = {set};
    EXPECT_THAT(refusal(spec), HasSubstr("process set " + std::to_string(set) + ", which its members did not add"));
  }
  spec.shape = {2};
  spec.channel = 0;
  EXPECT_THAT(refusal(spec), HasSubstr("which cannot be"));
}

// A member that was behind when the epoch ended applies the begin of a set like one that is no member.
TEST(MemberSets, TheirBeginIsAnEffectForMembersAndOthers) {
  CoordinatorConfig config;
  config.elastic = true;
  Ranks ranks(3, config);
  ranks.submit({gradient("x")});
  for (const int rank : {0, 1}) ranks[rank].add_set_by_members({0, 1}, "tp");
  ranks.deliver(1, ranks.turn(1));
  ranks.turn(0);  // the begin of the set reaches no other rank
  for (const int rank : {1, 2}) {
    Actions actions;
    ranks[rank].coordinator().catch_up(ranks[0].coordinator().effects().effects, actions);
    ASSERT_EQ(actions.size(), 1U) << "rank " << rank;
    EXPECT_EQ(std::get<AddSet>(actions[0]).keys.size(), rank == 1 ? 1U : 0U);
    EXPECT_TRUE(std::get<AddSet>(actions[0]).by_members);
    EXPECT_THAT(ranks[rank].coordinator().sets().at(1), ElementsAre(0, 1));
  }
}

}  // namespace
}  // namespace horo
