// Two-level all_reduces: the bits of one call of the kernel for all layouts of hosts, lengths and kinds of memory; the
// bytes that a host sends; and the events that end a wait, on all hosts alike.
#include "ring/group/two_level.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <numeric>
#include <random>
#include <set>
#include <thread>
#include <tuple>

#include "horo/base/error.h"
#include "tests/effort.h"
#include "tests/ring/group/hosts.h"
#include "tests/ring/reduce/small_values.h"
#include "tests/ring/run_ranks.h"

namespace horo::two_level_test {
namespace {

using test::DyingTransport;
using test::everybody;
using test::group_of;
using test::kLayouts;
using test::kPairs;
using test::Rank;
using test::run_ranks;
using test::run_ranks_well;
using test::Wire;
using testing::HasSubstr;
using Bytes = std::vector<std::byte>;

// Where a member has its tensor: in a bucket, in its own memory, or in pieces.
enum class Memory { kBucket, kInPlace, kOwn, kPieces };

struct Case {
  Collective c;
  std::vector<Memory> memory;  // by member
  unsigned seed = 0;
};

constexpr DType kCaseTypes[] = {DType::kFloat32, DType::kFloat32, DType::kBFloat16, DType::kFloat16,  DType::kFloat64,
                                DType::kInt32,   DType::kUint8,   DType::kBool,     DType::kComplex64};
constexpr std::size_t kLengths[] = {0, 1, 3, 700, 1'025, 9'000, 40'001, 200'000, 700'001};

template <class Random>
Case draw_case(Random& random, const std::vector<int>& hosts, unsigned seed) {
  const auto pick = [&](const auto& from) { return from[random() % std::size(from)]; };
  Case d;
  d.seed = seed;
  d.c.dtype = pick(kCaseTypes);
  d.c.op = pick(std::array{ReduceOp::kSum, ReduceOp::kAverage, ReduceOp::kMax, ReduceOp::kProduct});
  if (d.c.dtype == DType::kComplex64 && d.c.op == ReduceOp::kMax) d.c.op = ReduceOp::kSum;
  if (d.c.dtype == DType::kBool && d.c.op == ReduceOp::kAverage) d.c.op = ReduceOp::kSum;
  d.c.counts = {pick(kLengths)};
  const bool has_absent = random() % 3 == 0;
  for (std::size_t member = 0; member < hosts.size(); ++member) {
    d.c.contributors.push_back(has_absent && random() % 3 == 0 ? kAbsent : static_cast<std::int64_t>(member));
    d.memory.push_back(pick(std::array{Memory::kBucket, Memory::kInPlace, Memory::kOwn, Memory::kPieces}));
  }
  // In half of the cases all members of a host use the same kind of memory.
  if (random() % 2 == 0) {
    const Memory memory = d.memory[0];
    for (std::size_t member = 0; member < hosts.size(); ++member) {
      if (hosts[member] == hosts[0] || random() % 2 == 0) d.memory[member] = memory;
    }
  }
  const bool scales = d.c.op != ReduceOp::kMax && d.c.op != ReduceOp::kProduct && d.c.dtype != DType::kBool;
  d.c.prescale = d.c.postscale = scales && random() % 2 == 0 ? 0.75 : 1.0;
  d.c.divisor = d.c.op == ReduceOp::kAverage ? static_cast<double>(hosts.size()) : 1.0;
  d.c.plan = seed;
  d.c.deadline = test::soon(40'000);
  return d;
}

// Floats whose sum depends on the order of summation, and small values of the other types.
Bytes values_of(const Case& d, std::size_t member) {
  const std::size_t count = d.c.counts[0];
  Bytes bytes = test::small_values(d.c.dtype, count, d.seed * 100 + static_cast<unsigned>(member));
  if (d.c.dtype != DType::kFloat32) return bytes;
  std::mt19937_64 random(d.seed * 100 + member);
  for (std::size_t i = 0; i < count; ++i) {
    const float value = std::ldexp(static_cast<float>(random() % 64) / 37, static_cast<int>(random() % 8));
    std::memcpy(bytes.data() + i * sizeof(value), &value, sizeof(value));
  }
  return bytes;
}

Bytes oracle(const Case& d) {
  std::vector<Bytes> all;
  std::vector<TreeInput> inputs;
  std::vector<std::int64_t> ids;
  for (std::size_t member = 0; member < d.c.contributors.size(); ++member) {
    if (d.c.contributors[member] == kAbsent) continue;
    all.push_back(values_of(d, member));
    ids.push_back(d.c.contributors[member]);
  }
  for (const Bytes& one : all) inputs.push_back({one.data()});
  Bytes sum(d.c.counts[0] * size_of(d.c.dtype));
  reduce_tree({d.c.dtype, d.c.op, {d.c.prescale, d.c.postscale, d.c.divisor}}, canonical_tree(ids), inputs, sum.data(),
              d.c.counts[0]);
  return sum;
}

// A member's tensor in a given kind of memory.
class Tensor {
 public:
  Tensor(Group& group, const Case& d, Memory memory, Bytes values) : in_(std::move(values)), out_(in_.size()), c_(d.c) {
    if (memory == Memory::kPieces && group.takes_pieces(c_)) {
      cut(size_of(d.c.dtype), d.seed);
      return;
    }
    c_.in = c_.out = {in_.data(), in_.size()};
    if (memory == Memory::kOwn) c_.out.data = out_.data();
    if (memory != Memory::kBucket) return;
    bucket_ = group.allocate(in_.size());
    if (!in_.empty()) std::memcpy(bucket_.data.get(), in_.data(), in_.size());
    c_.in.data = c_.out.data = bucket_.data.get();
  }
  const Collective& collective() const { return c_; }
  Bytes result() const {
    if (!pieces_.empty()) return out_;
    return {c_.out.data, c_.out.data + in_.size()};
  }

 private:
  void cut(std::size_t each, unsigned seed) {
    std::mt19937 random(seed);
    for (std::size_t begin = 0; begin < in_.size();) {
      const std::size_t bytes = std::min(in_.size() - begin, random() % 30'000 * each);
      pieces_.push_back({in_.data() + begin, out_.data() + begin, bytes});
      begin += bytes;
    }
    c_.pieces = pieces_;
  }

  Bytes in_, out_;
  Allocation bucket_;
  std::vector<Piece> pieces_;
  Collective c_;
};

void try_case(Rank& rank, Group& group, const std::vector<int>& hosts, const Case& d) {
  const auto me = static_cast<std::size_t>(rank.index());
  Tensor tensor(group, d, d.memory[me], values_of(d, me));
  group.run(tensor.collective());
  const bool is_canonical = hosts_of_group(d.c.contributors, hosts).are_subtrees;
  EXPECT_EQ(group.algorithm(tensor.collective()) == kTwoLevel, is_canonical);
  const auto& ids = d.c.contributors;
  if (std::all_of(ids.begin(), ids.end(), [](auto id) { return id == kAbsent; })) return;
  ASSERT_TRUE(tensor.result() == oracle(d))
      << "rank " << rank.index() << ", seed " << d.seed << ", " << name_of(d.c.dtype) << ", " << d.c.counts[0];
}

void try_cases(const std::vector<int>& hosts, const Config& config, unsigned cases) {
  run_ranks_well({static_cast<int>(hosts.size()), Wire::kShm, config}, [&](Rank& rank) {
    const auto group = group_of(rank, hosts);
    std::mt19937 random(11);
    for (unsigned seed = 0; seed < cases && !testing::Test::HasFailure(); ++seed) {
      try_case(rank, *group, hosts, draw_case(random, hosts, seed));
    }
  });
}

TEST(TwoLevel, GivesTheBitsOfOneSumForEveryLayoutOfHosts) {
  for (const auto& hosts : kLayouts) try_cases(hosts, {}, test::kSanitized ? 2u : 10u);
  Config past_caches;
  past_caches.shm_past_caches = "on";
  try_cases(kPairs, past_caches, test::kSanitized ? 2u : 10u);
}

// An all_reduce of float32 ones.
Collective of_ones(std::vector<float>& data, std::size_t size, std::uint64_t plan) {
  Collective c;
  c.counts = {data.size()};
  for (std::size_t member = 0; member < size; ++member) c.contributors.push_back(static_cast<std::int64_t>(member));
  c.in = c.out = {reinterpret_cast<std::byte*>(data.data()), data.size() * sizeof(float)};
  c.plan = plan;
  c.deadline = test::soon();
  return c;
}

void expect_sum(Rank& rank, Group& group, std::size_t size, std::size_t count, std::uint64_t plan) {
  std::vector<float> data(count, 1.f);
  group.run(of_ones(data, size, plan));
  EXPECT_EQ(data, std::vector<float>(count, static_cast<float>(size))) << "rank " << rank.index();
}

TEST(TwoLevel, AHostSendsWhatOneRankPerHostWould) {
  constexpr std::size_t kCount = 1 << 20;
  for (const auto& hosts : {kPairs, {0, 0, 1}, {0, 0, 0, 0, 1, 1, 2, 3}}) {
    const auto alone = std::set<int>(hosts.begin(), hosts.end()).size();
    std::vector<std::atomic<std::uint64_t>> left(alone);
    run_ranks_well({static_cast<int>(hosts.size()), Wire::kShm, {}}, [&](Rank& rank) {
      const auto group = group_of(rank, hosts);
      expect_sum(rank, *group, hosts.size(), kCount, 1);  // the members exchange the offsets of their control blocks
      const std::uint64_t before = rank.transport().traffic(0).bytes_sent;
      expect_sum(rank, *group, hosts.size(), kCount, 2);
      left[static_cast<std::size_t>(hosts[static_cast<std::size_t>(rank.index())])] +=
          rank.transport().traffic(0).bytes_sent - before;
    });
    const double n = static_cast<double>(alone), expected = 2 * (n - 1) / n * kCount * sizeof(float);
    for (const auto& bytes : left) EXPECT_NEAR(static_cast<double>(bytes.load()), expected, 0.005 * expected);
  }
}

TEST(TwoLevel, AGroupMayHaveSomeRanksOfEachHost) {
  run_ranks_well({6, Wire::kShm, {}}, [](Rank& rank) {
    if (rank.index() == 2) return;
    const std::vector<int> members = {0, 1, 3, 4, 5};
    const auto group = make_transport_group(rank.links, {members, 3, {0, 0, 1, 1, 2}}, rank.config, rank.counters);
    for (std::uint64_t plan = 0; plan < 20; ++plan) expect_sum(rank, *group, members.size(), 1 + plan * 7'000, plan);
    EXPECT_EQ(rank.counters.collectives(3, CollectiveKind::kAllReduce).count, 20u);
  });
}

TEST(TwoLevel, TheOverrideOnOneHostUsesSharedMemory) {
  Config config;
  config.algorithms = "all_reduce=two-level";
  run_ranks_well({2, Wire::kShm, config}, [](Rank& rank) {
    expect_sum(rank, *rank.group, 2, 5'000, 1);
    std::vector<float> data(5'000);
    EXPECT_EQ(rank.group->algorithm(of_ones(data, 2, 2)), "shm");
  });
}

TEST(TwoLevel, IsTakenForItsOverrideAndNotForAnother) {
  for (const auto& [override_text, transport, taken] : {std::tuple{"all_reduce=two-level", "shm", true},
                                                        {"", "shm", true},
                                                        {"", "tcp", false},
                                                        {"all_reduce=two-level", "tcp", false},
                                                        {"all_reduce=hierarchical", "shm", false}}) {
    Config config;
    config.algorithms = override_text;
    run_ranks_well({4, Wire::kShm, config}, [&, transport = transport, taken = taken](Rank& rank) {
      rank.config.transport = transport;
      const auto group = group_of(rank, kPairs);
      expect_sum(rank, *group, 4, 5'000, 1);
      std::vector<float> data(5'000);
      EXPECT_EQ(group->algorithm(of_ones(data, 4, 2)) == kTwoLevel, taken) << transport;
    });
  }
}

// Hosts that are no subtrees may sum first only if the order does not matter.
TEST(TwoLevel, IsTakenForAFastSumOnAnyHosts) {
  const std::vector<int> hosts = {0, 1, 0, 1};
  run_ranks_well({4, Wire::kShm, {}}, [&](Rank& rank) {
    const auto group = group_of(rank, hosts);
    std::vector<float> data(100'000, 1.f);
    Collective c = of_ones(data, 4, 1);
    c.order = Order::kFast;
    group->run(c);
    EXPECT_EQ(data, std::vector<float>(100'000, 4.f));
    EXPECT_EQ(group->algorithm(c), kTwoLevel);
    c.order = Order::kCanonical;
    EXPECT_NE(group->algorithm(c), kTwoLevel);
  });
}

constexpr std::size_t kFewCounts[] = {4, 600, 1'000'000};

// A member differs from the other one of its host, or one host from the other.
TEST(TwoLevel, ADifferenceIsAMismatchOnAllHostsAndTheNextCollectiveWorks) {
  for (const std::size_t count : kFewCounts) {
    for (const std::vector<int>& differ : {std::vector<int>{1}, {2, 3}, {0, 1, 2}}) {
      run_ranks_well({4, Wire::kShm, {}}, [&](Rank& rank) {
        const auto group = group_of(rank, kPairs);
        expect_sum(rank, *group, 4, count, 0);
        const bool differs = std::count(differ.begin(), differ.end(), rank.index()) > 0;
        std::vector<float> data(count, 1.f), longer(count + 3'000, 1.f);
        Collective other = of_ones(data, 4, 1);
        other.key_hash = differs ? 7 : 6;
        EXPECT_THROW(group->run(other), Mismatch) << count << ", rank " << rank.index();
        expect_sum(rank, *group, 4, count, 2);
        EXPECT_THROW(group->run(of_ones(differs ? longer : data, 4, 3)), Mismatch) << count;
        expect_sum(rank, *group, 4, count, 4);
      });
    }
  }
}

// The member that waits for rank 3 in shared memory detects it first and ends the waits of the other ranks.
TEST(TwoLevel, ALateRankEndsItOnAllHosts) {
  for (const std::size_t count : kFewCounts) {
    const auto errors = run_ranks({4, Wire::kShm, {}}, [&](Rank& rank) {
      const auto group = group_of(rank, kPairs);
      expect_sum(rank, *group, 4, count, 0);
      std::vector<float> data(count, 1.f);
      Collective c = of_ones(data, 4, 1);
      if (rank.index() == 2) c.deadline = Clock::now() + std::chrono::milliseconds(100);
      const TimePoint late = Clock::now() + std::chrono::milliseconds(400);
      while (rank.index() == 3 && Clock::now() < late) std::this_thread::yield();
      group->run(c);
    });
    EXPECT_THAT(test::message_of(errors[2]), HasSubstr("still waiting in shared memory for rank 3"));
    for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(test::origin_of(errors[static_cast<std::size_t>(rank)]), 3) << rank;
  }
}

TEST(TwoLevel, AnAbortEndsItOnAllHosts) {
  for (int aborter = 0; aborter < 4; ++aborter) {
    const auto errors = run_ranks({4, Wire::kShm, {}}, [&](Rank& rank) {
      const auto group = group_of(rank, kPairs);
      expect_sum(rank, *group, 4, 50'000, 0);
      if (rank.index() == aborter) return rank.transport().abort(aborter, "it aborts");
      std::vector<float> data(50'000, 1.f);
      group->run(of_ones(data, 4, 1));
    });
    for (int rank = 0; rank < 4; ++rank) {
      if (rank == aborter) continue;
      EXPECT_THAT(test::message_of(errors[static_cast<std::size_t>(rank)]), HasSubstr("it aborts")) << aborter;
    }
  }
}

// At any point from the exchange of offsets to the last slice, for 4 MB in the callers' memory and in buckets.
TEST(TwoLevel, ARankThatDiesDuringItIsNamedByAll) {
  for (int allowed = 0; allowed < 60; allowed += test::kSanitized ? 20 : 4) {
    for (const bool in_buckets : {false, true}) {
      const auto errors = run_ranks({4, Wire::kShm, {}}, [&](Rank& rank) {
        DyingTransport dying(rank.transport(), rank.index() == 2 ? allowed : 1 << 30);
        const auto group = make_transport_group(dying, {everybody(4), 0, kPairs, usual_costs(), rank.links.arenas},
                                                rank.config, rank.counters);
        std::vector<float> data(1'000'000, 1.f);
        const Allocation bucket = group->allocate(data.size() * sizeof(float));
        for (std::uint64_t plan = 0; plan < 3; ++plan) {
          Collective c = of_ones(data, 4, plan);
          if (in_buckets) c.in.data = c.out.data = bucket.data.get();
          group->run(c);
        }
      });
      for (const int rank : {0, 1, 3}) {
        const auto& error = errors[static_cast<std::size_t>(rank)];
        EXPECT_EQ(test::origin_of(error), 2) << allowed << ", rank " << rank << ": " << test::message_of(error);
      }
    }
  }
}

}  // namespace
}  // namespace horo::two_level_test
