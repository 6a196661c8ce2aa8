// Process sets that their members alone add and remove, through sessions.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <poll.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <filesystem>
#include <fstream>
#include <numeric>

#include "tests/effort.h"
#include "tests/horo/worlds.h"
#include "tests/ring/run_ranks.h"

namespace horo {
namespace {

using testing::AnyOf;
using testing::Each;
using testing::HasSubstr;

std::uint32_t number_of(Session& session, const std::shared_ptr<Work>& added) {
  return static_cast<std::uint32_t>(outcome_of(session, added).counts.at(0));
}

std::uint32_t add_with_members(Session& session, const std::vector<int>& ranks, const std::string& name) {
  return number_of(session, session.add_set_by_members(ranks, name));
}

float sum_of_ones(Session& session, std::uint32_t set, std::int64_t elements = 3) {
  TensorSpec spec = float_spec("x", elements);
  spec.set = set;
  std::vector<float> x(static_cast<std::size_t>(elements), 1.0f);
  session.run(spec, x.data(), x.data());
  return std::accumulate(x.begin(), x.end(), 0.0f) / static_cast<float>(elements);
}

// Rank 1 makes no call until the others are done.
TEST(MemberSets, AreAddedUsedAndRemovedWhileOtherRanksDoNothing) {
  std::barrier done(3);
  const auto thrown = run_world(3, [&](Session& session) {
    if (session.topology().rank != 1) {
      const std::uint32_t set = add_with_members(session, {0, 2}, "tp");
      EXPECT_EQ(sum_of_ones(session, set), 2.0f);
      EXPECT_EQ(session.set_info(set).name, "tp");
      outcome_of(session, session.remove_set(set));
      EXPECT_THAT(thrown_by([&] { sum_of_ones(session, set); }), HasSubstr("process set 1 was removed"));
    }
    done.arrive_and_wait();
    EXPECT_EQ(sum_of_ones(session, 0), 3.0f);
    meet(session);
  });
  EXPECT_THAT(thrown, Each(""));
}

TEST(MemberSets, MayHaveTheRanksOfTheWorldOrOne) {
  const auto thrown = run_world(2, [](Session& session) {
    const int rank = session.topology().rank;
    const auto first = session.add_set_by_members({0, 1}, rank == 0 ? "a" : "b");
    const auto second = session.add_set_by_members({0, 1}, rank == 0 ? "b" : "a");
    const auto own = session.add_set_by_members({rank}, "own " + std::to_string(rank));
    EXPECT_EQ(sum_of_ones(session, number_of(session, rank == 0 ? first : second)), 2.0f);
    EXPECT_EQ(sum_of_ones(session, number_of(session, rank == 0 ? second : first)), 2.0f);
    EXPECT_EQ(sum_of_ones(session, number_of(session, own)), 1.0f);
    meet(session);
  });
  EXPECT_THAT(thrown, Each(""));
}

TEST(MemberSets, DisagreementsFailOnAllMembersAndTheSessionGoesOn) {
  const auto thrown = run_world(3, [](Session& session) {
    const int rank = session.topology().rank;
    if (rank < 2) {
      const auto add = [&] { add_with_members(session, rank == 0 ? std::vector{0, 1} : std::vector{0, 1, 2}, "tp"); };
      EXPECT_THAT(thrown_by(add), HasSubstr("ranks [0, 1] on rank 0; ranks [0, 1, 2] on rank 1. Nothing was changed"));
      const auto shrinks = [&] { number_of(session, session.add_set_by_members({0, 1}, "pp", rank == 1)); };
      EXPECT_THAT(thrown_by(shrinks), HasSubstr("shrinks=False on rank 0; shrinks=True on rank 1"));
      EXPECT_EQ(sum_of_ones(session, add_with_members(session, {0, 1}, "tp")), 2.0f);
    }
    EXPECT_EQ(sum_of_ones(session, 0), 3.0f);
    meet(session);
  });
  EXPECT_THAT(thrown, Each(""));
}

TEST(MemberSets, InvalidCallsFailAtOnceOnThisRankAlone) {
  std::barrier added(3), tried(3);
  const auto thrown = run_world(3, [&](Session& session) {
    const int rank = session.topology().rank;
    const auto refusal = [&](const std::vector<int>& ranks, const std::string& name) {
      return thrown_by([&] { session.add_set_by_members(ranks, name); });
    };
    const std::uint32_t set = rank < 2 ? add_with_members(session, {0, 1}, "tp") : 1;
    added.arrive_and_wait();
    if (rank == 2) {
      EXPECT_EQ(refusal({0, 1}, "pp"),
                "add_set 'pp': rank 2 is not among the ranks 0, 1; the members of the set "
                "alone add it");
      EXPECT_EQ(refusal({1, 2}, ""),
                "add_set: a process set that its members alone add has a name, by which they "
                "find each other");
      EXPECT_EQ(refusal({2, 3}, "pp"), "add_set 'pp': rank 3 is not in this world of 3");
      while (!thrown_by([&] { session.set_info(set); }).empty()) std::this_thread::yield();
      EXPECT_THAT(thrown_by([&] { session.remove_set(set); }), HasSubstr("rank 2 is not in process set 'tp'"));
      EXPECT_THAT(thrown_by([&] { sum_of_ones(session, set); }), HasSubstr("rank 2 is not in process set 'tp'"));
      tried.arrive_and_wait();
    } else {
      EXPECT_EQ(refusal({0, 1}, "tp"), "add_set 'tp': process set 1 has that name already");
      const auto in_flight = session.add_set_by_members({0, 1}, "once");
      EXPECT_THAT(refusal({0, 1}, "once"),
                  AnyOf(HasSubstr("a tensor of that name is in flight already"), HasSubstr("has that name already")));
      number_of(session, in_flight);
      tried.arrive_and_wait();  // rank 2 still finds the set
      const auto removed = session.remove_set(set);
      EXPECT_THAT(thrown_by([&] { session.remove_set(set); }),
                  AnyOf(HasSubstr("is being removed already"), HasSubstr("was removed")));
      outcome_of(session, removed);
    }
    meet(session);
  });
  EXPECT_THAT(thrown, Each(""));
}

TEST(MemberSets, TheLimitHoldsForThemToo) {
  Config config;
  config.max_process_sets = 2;
  const auto thrown = run_world(
      3,
      [](Session& session) {
        if (session.topology().rank < 2) {
          const std::uint32_t first = add_with_members(session, {0, 1}, "a");
          add_with_members(session, {0, 1}, "b");
          EXPECT_THAT(thrown_by([&] {
                        add_with_members(session, {0, 1}, "c");
                      }),
                      HasSubstr("2 process sets exist, no more are allowed (HORO_MAX_PROCESS_SETS)"));
          outcome_of(session, session.remove_set(first));
          add_with_members(session, {0, 1}, "c");
        }
        EXPECT_THAT(thrown_by([&] { number_of(session, session.add_set({0})); }), HasSubstr("HORO_MAX_PROCESS_SETS"));
        meet(session);
      },
      config);
  EXPECT_THAT(thrown, Each(""));
}

// What the process holds: of all its ranks, which are threads.
struct Held {
  std::size_t threads = 0, descriptors = 0, mappings = 0, bytes = 0, shared_bytes = 0;
};

std::size_t entries_of(const char* folder) {
  return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(folder), {}));
}

Held held_now() {
  Held held{entries_of("/proc/self/task"), entries_of("/proc/self/fd"), 0, mallinfo2().uordblks};
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) ++held.mappings;
  std::size_t pages = 0;  // all, resident, shared
  std::ifstream statm("/proc/self/statm");
  for (int i = 0; i < 3; ++i) statm >> pages;
  held.shared_bytes = pages * 4'096;
  return held;
}

// Runs the body on ranks that are threads, over shared memory.
void run_in_shared_memory(int size, const std::function<void(Session&)>& body) {
  const std::string addr = test::free_address();
  std::vector<std::function<void()>> ranks;
  for (int rank = 0; rank < size; ++rank) {
    ranks.push_back([&, rank] {
      Config config = test::config_of(rank, size, addr);
      config.transport = "shm";
      config.max_process_sets = 256;
      Session session(config);
      body(session);
      meet(session);
    });
  }
  for (const auto& error : test::run_threads(ranks)) EXPECT_EQ(test::message_of(error), "");
}

TEST(MemberSets, AThousandLeaveNothingBehind) {
  constexpr int kSets = test::effort(1'000);
  std::barrier both(2);
  Held before, after;
  run_in_shared_memory(3, [&](Session& session) {
    const int rank = session.topology().rank;
    if (rank == 2) return;
    for (int set = 0; set < kSets; ++set) {
      const std::uint32_t number = add_with_members(session, {0, 1}, "set " + std::to_string(set));
      EXPECT_EQ(sum_of_ones(session, number, 1'000), 2.0f);
      outcome_of(session, session.remove_set(number));
      if (set != 99 && set != kSets - 1) continue;
      both.arrive_and_wait();
      ::poll(nullptr, 0, 50);
      if (rank == 0) (set == 99 ? before : after) = held_now();
      both.arrive_and_wait();
    }
  });
  EXPECT_EQ(after.threads, before.threads);
  EXPECT_EQ(after.descriptors, before.descriptors);
  EXPECT_LE(after.mappings, before.mappings + (test::kSanitized ? 64 : 8)) << "those of an allocator that grows";
  EXPECT_LE(after.bytes, before.bytes + std::size_t{kSets - 100} * 4'096) << "of heap, of three ranks";
  EXPECT_LE(after.shared_bytes, before.shared_bytes + (std::size_t{64} << 20)) << "2 MiB of an arena for each";
  const double bytes_per_set = (static_cast<double>(after.bytes) - static_cast<double>(before.bytes)) / (kSets - 100);
  RecordProperty("bytes_per_set", std::to_string(bytes_per_set));
}

TEST(MemberSets, TwoHundredExistAtOnce) {
  std::barrier both(2);
  run_in_shared_memory(2, [&](Session& session) {
    both.arrive_and_wait();
    const Held before = held_now();
    both.arrive_and_wait();
    std::vector<std::shared_ptr<Work>> added;
    for (int set = 0; set < 200; ++set) added.push_back(session.add_set_by_members({0, 1}, std::to_string(set)));
    std::vector<std::uint32_t> numbers;
    for (const auto& work : added) numbers.push_back(number_of(session, work));
    for (const std::uint32_t number : numbers) EXPECT_EQ(sum_of_ones(session, number), 2.0f);
    both.arrive_and_wait();
    EXPECT_EQ(held_now().threads, before.threads + 400) << "a thread for each set and member";
    both.arrive_and_wait();
    std::vector<std::shared_ptr<Work>> removed;
    for (const std::uint32_t number : numbers) removed.push_back(session.remove_set(number));
    for (const auto& work : removed) outcome_of(session, work);
  });
}

}  // namespace
}  // namespace horo
