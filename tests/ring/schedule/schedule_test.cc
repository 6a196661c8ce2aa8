// The schedules of all makers, checked by check_schedule() without I/O. schedule_fault_test.cc tests the proof itself.

#include "ring/schedule/schedule.h"

#include <gtest/gtest.h>

#include <functional>
#include <stdexcept>

#include "horo/base/say.h"
#include "ring/schedule/schedule_check.h"
#include "ring/schedule/schedule_parts.h"
#include "tests/effort.h"

namespace horo {
namespace {

using Kind = CollectiveKind;

std::vector<Schedule> for_all(ScheduleMaker make, const Shape& shape) {
  std::vector<Schedule> schedules;
  for (int member = 0; member < shape.size; ++member) schedules.push_back(make(shape, member));
  return schedules;
}

Shape shape_for(Kind kind, int size, int root = 0) {
  Shape shape;
  shape.kind = kind;
  shape.size = size;
  shape.root = root;
  return shape;
}

// The message of the proof, or "".
std::string fault_of(const Shape& shape, const std::vector<Schedule>& schedules) {
  try {
    check_schedule(shape, schedules);
    return "";
  } catch (const std::invalid_argument& fault) {
    return fault.what();
  }
}

TEST(Schedule, EveryMakersSchedulesAreCorrectForEverySizeFrom1To33) {
  for (const NamedMaker& maker : all_schedule_makers()) {
    for (int size = 1; size <= 33; ++size) {
      const Shape shape = shape_for(maker.kind, size);
      EXPECT_EQ(fault_of(shape, for_all(maker.make, shape)), "") << name_of(maker.kind) << " " << size;
    }
  }
}

TEST(Schedule, EveryMemberMayBeTheRoot) {
  for (const NamedMaker& maker : all_schedule_makers()) {
    for (int size = 2; size <= 12 && has_root(maker.kind); ++size) {
      for (int root = 1; root < size; ++root) {
        const Shape shape = shape_for(maker.kind, size, root);
        EXPECT_EQ(fault_of(shape, for_all(maker.make, shape)), "") << name_of(maker.kind) << " " << size;
      }
    }
  }
}

TEST(Schedule, AnyMembersMayBeAbsent) {
  for (const NamedMaker& maker : all_schedule_makers()) {
    for (int size = 1; size <= 8 && reduces(maker.kind); ++size) {
      for (unsigned present = 0; present < 1u << size; ++present) {
        Shape shape = shape_for(maker.kind, size, static_cast<int>(present) % size);
        for (int i = 0; i < size; ++i) shape.contributors.push_back((present >> i & 1) != 0 ? i : -1);
        ASSERT_EQ(fault_of(shape, for_all(maker.make, shape)), "") << maker.name << " " << size << " " << present;
      }
    }
  }
}

// The tree over the ids 0, 1, 5, 6, 7 differs from the tree over the places 0 to 4.
TEST(Schedule, SumsFollowTheIdsOfTheContributors) {
  Shape shape = shape_for(Kind::kAllReduce, 5);
  shape.contributors = {0, 1, 5, 6, 7};
  for (const NamedMaker& maker : all_schedule_makers()) {
    if (maker.kind != shape.kind) continue;
    const auto schedules = for_all(maker.make, shape);
    const Proof proof = check_schedule(shape, schedules);
    if (schedules[0].order == Order::kFast) continue;
    EXPECT_EQ(proof.sum, "((0 + 1) + (2 + (3 + 4)))") << maker.name;
  }
}

// Calls f with every assignment of members to hosts, which are numbered in order of appearance.
void for_every_layout(int size, const std::function<void(const Shape&)>& f) {
  Shape shape = shape_for(Kind::kAllReduce, size);
  const std::function<void(int)> add = [&](int hosts) {
    if (static_cast<int>(shape.hosts.size()) == size) return f(shape);
    for (int host = 0; host <= hosts; ++host) {
      shape.hosts.push_back(host);
      add(std::max(hosts, host + 1));
      shape.hosts.pop_back();
    }
  };
  add(0);
}

TEST(Schedule, HierarchiesAreCanonicalForEveryLayoutOfHosts) {
  for (int size = 1; size <= 6; ++size) {
    for_every_layout(
        size, [](const Shape& shape) { ASSERT_EQ(fault_of(shape, for_all(hierarchical_all_reduce, shape)), ""); });
  }
}

TEST(Schedule, HierarchiesAreCanonicalForAllHostsOfNeighboursUpTo12Ranks) {
  for (int size = 7; size <= (test::kSanitized ? 9 : 12); ++size) {
    for (unsigned cuts = 0; cuts < 1u << (size - 1); ++cuts) {
      Shape shape = shape_for(Kind::kAllReduce, size);
      for (int i = 0, host = 0; i < size; ++i) {
        shape.hosts.push_back(host);
        host += static_cast<int>(cuts >> i & 1);
      }
      ASSERT_EQ(fault_of(shape, for_all(hierarchical_all_reduce, shape)), "") << size << " " << cuts;
    }
  }
}

// Chunks of one byte each, and of two bytes as partial results.
Cost cost(ScheduleMaker make, const Shape& shape, std::size_t bytes) {
  const auto schedules = for_all(make, shape);
  const auto chunks = static_cast<std::size_t>(schedules[0].chunks);
  EXPECT_EQ(bytes % chunks, 0u);
  const std::vector<std::size_t> each(chunks, bytes / chunks);
  return cost_of(shape, schedules, {each, each});
}

TEST(Schedule, BytesBetweenHostsDoNotDependOnTheNumberOfRanks) {
  for (const int ranks : {1, 2, 4}) {  // three neighbours are not a subtree of the canonical tree over twelve
    Shape shape = shape_for(Kind::kAllReduce, 4 * ranks);
    for (int i = 0; i < shape.size; ++i) shape.hosts.push_back(i / ranks);
    for (const std::size_t sent : cost(hierarchical_all_reduce, shape, 4800).left_hosts) {
      EXPECT_EQ(sent, 2 * 3 * 4800 / 4u) << ranks;
    }
  }
}

TEST(Schedule, HostsFirstIsCorrectForEveryLayoutOfHosts) {
  for (int size = 1; size <= 6; ++size) {
    for_every_layout(
        size, [](const Shape& shape) { ASSERT_EQ(fault_of(shape, for_all(hosts_first_all_reduce, shape)), ""); });
  }
}

TEST(Schedule, InAnyOrderUnequalHostsSendOneSumEach) {
  for (const int first_host : {1, 2, 3, 5}) {
    Shape shape = shape_for(Kind::kAllReduce, 6);
    for (int i = 0; i < shape.size; ++i) shape.hosts.push_back(i < first_host ? 0 : 1);
    for (const std::size_t sent : cost(hosts_first_all_reduce, shape, 6000).left_hosts) EXPECT_EQ(sent, 6000u);
  }
}

TEST(Schedule, DirectAndRingSendTheBytesOfTheFormula) {
  for (int size = 2; size <= 8; ++size) {
    const auto bytes = static_cast<std::size_t>(size) * 840;
    for (const ScheduleMaker make : {direct_all_reduce, ring_all_reduce_schedule}) {
      for (const std::size_t sent : cost(make, shape_for(Kind::kAllReduce, size), bytes).sent) {
        EXPECT_EQ(sent, 2 * (bytes - bytes / static_cast<std::size_t>(size)));
      }
    }
  }
}

TEST(Schedule, LogStepSchedulesHaveLogarithmicRounds) {
  for (const ScheduleMaker make : {log_step_all_gather, log_step_reduce_scatter, log_step_all_to_all}) {
    for (const NamedMaker& maker : all_schedule_makers()) {
      if (maker.make != make) continue;
      EXPECT_EQ(make(shape_for(maker.kind, 2), 0).rounds.size(), 1u);
      EXPECT_EQ(make(shape_for(maker.kind, 5), 0).rounds.size(), 3u);
      EXPECT_EQ(make(shape_for(maker.kind, 33), 0).rounds.size(), 6u);
    }
  }
}

TEST(Schedule, PrintsOneLinePerRound) {
  EXPECT_EQ(print(direct_all_reduce(shape_for(Kind::kAllReduce, 2), 0)),
            "direct, member 0 of 2, 2 chunks, canonical\n"
            "round 0: send in[1] to 1; receive scratch0[0] from 1; out[0] = (in[0] + scratch0[0])\n"
            "round 1: send out[0] to 1; receive out[1] from 1\n");
}

}  // namespace
}  // namespace horo
