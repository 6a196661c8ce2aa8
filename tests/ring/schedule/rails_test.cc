// Which member owns which rail, and the schedules on rails. Pure.
#include "ring/schedule/rails.h"

#include <gtest/gtest.h>

#include <map>
#include <utility>

#include "ring/group.h"

namespace horo {
namespace {

using Ids = std::vector<std::int64_t>;

TEST(Rails, OneIdRepresentsAHostWhoseMembersAreASubtree) {
  const HostsOfGroup pairs = hosts_of_group({0, 1, 2, 3}, {0, 0, 1, 1});
  EXPECT_TRUE(pairs.are_subtrees);
  EXPECT_EQ(pairs.contributors, (Ids{0, 2}));
  EXPECT_EQ(pairs.members, (std::vector<std::vector<int>>{{0, 1}, {2, 3}}));
  EXPECT_FALSE(hosts_of_group({0, 1, 2, 3}, {0, 1, 0, 1}).are_subtrees);
  EXPECT_FALSE(hosts_of_group({0, 1, 2, 3, 4, 5}, {0, 0, 0, 1, 1, 1}).are_subtrees);
  EXPECT_TRUE(hosts_of_group({0, 1, 2, 4, 5, 6}, {0, 0, 0, 1, 1, 1}).are_subtrees)
      << "ids determine the tree, not places";
}

TEST(Rails, AbsentMembersAreNotInTheTree) {
  const HostsOfGroup some = hosts_of_group({0, 1, kAbsent, 3}, {0, 0, 1, 1});
  EXPECT_TRUE(some.are_subtrees);
  EXPECT_EQ(some.contributors, (Ids{0, 3}));
  const HostsOfGroup one = hosts_of_group({kAbsent, kAbsent, 2, 3}, {0, 0, 1, 1});
  EXPECT_EQ(one.contributors, (Ids{2, kAbsent})) << "hosts with contributors precede the others";
  EXPECT_EQ(one.members.front(), (std::vector<int>{2, 3}));
  EXPECT_TRUE(hosts_of_group({kAbsent, 1, 2, 3}, {0, 1, 1, 0}).contributors == (Ids{1, 3}));
  EXPECT_TRUE(hosts_of_group({kAbsent, kAbsent}, {0, 1}).are_subtrees);
}

TEST(Rails, EveryHostHasOneOwnerForEachRail) {
  for (const std::vector<int>& hosts :
       {std::vector<int>{0, 0, 1}, {0, 0, 0, 1, 1}, {0, 0, 0, 0, 0, 1, 1, 1, 2}, {0, 1, 2, 2}}) {
    const Ids ids(hosts.size(), kAbsent);
    for (std::size_t most = 1; most <= 6; ++most) {
      const Rails rails(hosts_of_group(ids, hosts), most);
      std::map<std::pair<int, int>, int> owners;  // {host, rail}
      for (std::size_t member = 0; member < hosts.size(); ++member) {
        const Rails::Run run = rails.of(static_cast<int>(member));
        for (int rail = run.first; rail < run.first + run.count; ++rail) ++owners[{hosts[member], rail}];
      }
      for (const auto& [of, count] : owners) EXPECT_EQ(count, 1) << of.first << " " << of.second;
      EXPECT_EQ(owners.size(), static_cast<std::size_t>(rails.count() * (hosts.back() + 1)));
    }
  }
}

// For every schedule and layout an owner receives what is sent to it, in the same order.
TEST(Rails, SendsMatchReceives) {
  const std::vector<int> hosts = {0, 0, 0, 1, 2, 2};
  const Rails rails(hosts_of_group({0, 1, 2, 3, 4, 5}, hosts), 8);
  EXPECT_EQ(rails.count(), 3);
  for (const ScheduleMaker make : {one_shot_all_reduce, direct_all_reduce, tree_all_reduce, ring_all_reduce_schedule}) {
    std::vector<Schedule> laid;
    for (int member = 0; member < 6; ++member) {
      Shape shape;
      shape.size = 3;
      laid.push_back(rails.lay(make(shape, hosts[static_cast<std::size_t>(member)]), member));
    }
    using Chunks = std::map<std::pair<int, int>, std::vector<std::pair<int, int>>>;  // {from, to}: first, count
    for (std::size_t r = 0; r < laid[0].rounds.size(); ++r) {
      Chunks sent, received;
      for (int member = 0; member < 6; ++member) {
        const Round& round = laid[static_cast<std::size_t>(member)].rounds[r];
        for (const Message& m : round.send) sent[{member, m.peer}].push_back({m.part.first, m.part.count});
        for (const Message& m : round.receive) received[{m.peer, member}].push_back({m.part.first, m.part.count});
      }
      EXPECT_EQ(sent, received) << laid[0].name << ", round " << r;
      for (const auto& [ends, parts] : sent) {
        EXPECT_NE(hosts[static_cast<std::size_t>(ends.first)], hosts[static_cast<std::size_t>(ends.second)]);
      }
    }
  }
}

}  // namespace
}  // namespace horo
