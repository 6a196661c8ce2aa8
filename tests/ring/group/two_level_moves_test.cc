// Two-level all_gathers and reduce_scatters: the bits of the whole blocks and of one call of the kernel for all layouts
// of hosts, lengths and kinds of memory; the bytes between hosts; and the events that end a wait, on all hosts alike.
#include "ring/group/two_level_moves.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <random>
#include <thread>
#include <tuple>

#include "horo/base/error.h"
#include "ring/group/two_level.h"
#include "tests/effort.h"
#include "tests/ring/group/hosts.h"
#include "tests/ring/reduce/small_values.h"

namespace horo::two_level_moves_test {
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

constexpr CollectiveKind kGather = CollectiveKind::kAllGather, kScatter = CollectiveKind::kReduceScatter;

// Short collectives in two levels, too.
Config always(Config config = {}) {
  config.algorithms = "all_gather=two-level,reduce_scatter=two-level";
  return config;
}

// Where a member has its input and output: in two buckets, in its own memory, or in memory that both share.
enum class Memory { kBuckets, kOwn, kInPlace, kOverlapping };

struct Case {
  Collective c;
  std::vector<Memory> memory{};  // by member
  unsigned seed = 0;
  std::vector<Bytes> inputs{};  // by member
  Bytes blocks{};               // the results, one behind the other

  std::size_t each() const { return size_of(c.dtype); }
  std::size_t begin_of(std::size_t member) const {
    return std::accumulate(c.counts.begin(), c.counts.begin() + static_cast<std::ptrdiff_t>(member), std::size_t{0});
  }
  std::size_t total() const { return begin_of(c.counts.size()); }
  bool gathers() const { return c.kind == kGather; }
};

constexpr DType kCaseTypes[] = {DType::kFloat32, DType::kFloat32, DType::kBFloat16, DType::kFloat16,    DType::kFloat64,
                                DType::kInt32,   DType::kUint8,   DType::kBool,     DType::kFloat8E4m3, DType::kInt64};
constexpr ReduceOp kCaseOps[] = {ReduceOp::kSum, ReduceOp::kAverage, ReduceOp::kMin, ReduceOp::kMax,
                                 ReduceOp::kProduct};

template <class Random>
std::size_t draw_count(Random& random, unsigned shape) {
  switch (shape) {
    case 0:
      return random() % 5;
    case 1:
      return random() % 3 == 0 ? 100'000 + random() % 100'000 : random() % 2;
    case 2:
      return 10'000;
    default:
      return random() % 30'000;
  }
}

template <class Random>
Case draw_case(Random& random, CollectiveKind kind, const std::vector<int>& hosts, unsigned seed) {
  const auto pick = [&](const auto& from) { return from[random() % std::size(from)]; };
  Case d;
  d.seed = seed;
  d.c.kind = kind;
  d.c.dtype = pick(kCaseTypes);
  d.c.op = kind == kScatter ? pick(kCaseOps) : ReduceOp::kSum;
  if (d.c.dtype == DType::kBool && d.c.op == ReduceOp::kAverage) d.c.op = ReduceOp::kSum;
  const bool has_absent = random() % 3 == 0;
  const Memory memory = pick(std::array{Memory::kBuckets, Memory::kOwn, Memory::kInPlace, Memory::kOverlapping});
  for (std::size_t member = 0; member < hosts.size(); ++member) {
    d.c.counts.push_back(draw_count(random, seed % 4));
    if (kind == kScatter) {
      d.c.contributors.push_back(has_absent && random() % 3 == 0 ? kAbsent : static_cast<std::int64_t>(member));
    }
    const bool is_mixed = random() % 3 == 0;
    d.memory.push_back(is_mixed ? pick(std::array{Memory::kBuckets, Memory::kOwn, Memory::kInPlace}) : memory);
  }
  const bool scales = d.c.op == ReduceOp::kSum && d.c.dtype == DType::kFloat32 && kind == kScatter;
  d.c.prescale = d.c.postscale = scales && random() % 2 == 0 ? 0.75 : 1.0;
  d.c.divisor = d.c.op == ReduceOp::kAverage ? static_cast<double>(hosts.size()) : 1.0;
  d.c.plan = seed;
  d.c.deadline = test::soon(40'000);
  return d;
}

// Floats whose sum depends on the order of summation, and small values of the other types.
Bytes values_of(const Case& d, std::size_t member) {
  const std::size_t count = d.gathers() ? d.c.counts[member] : d.total();
  Bytes bytes = test::small_values(d.c.dtype, count, d.seed * 100 + static_cast<unsigned>(member));
  if (d.c.dtype != DType::kFloat32) return bytes;
  std::mt19937_64 random(d.seed * 100 + member);
  for (std::size_t i = 0; i < count; ++i) {
    const float value = std::ldexp(static_cast<float>(random() % 64) / 37, static_cast<int>(random() % 8));
    std::memcpy(bytes.data() + i * sizeof(value), &value, sizeof(value));
  }
  return bytes;
}

void add_values(Case& d) {
  for (std::size_t member = 0; member < d.c.counts.size(); ++member) d.inputs.push_back(values_of(d, member));
  if (d.gathers()) {
    for (const Bytes& one : d.inputs) d.blocks.insert(d.blocks.end(), one.begin(), one.end());
    return;
  }
  std::vector<TreeInput> inputs;
  std::vector<std::int64_t> ids;
  for (std::size_t member = 0; member < d.c.counts.size(); ++member) {
    if (d.c.contributors[member] == kAbsent) continue;
    inputs.push_back({d.inputs[member].data()});
    ids.push_back(d.c.contributors[member]);
  }
  d.blocks.resize(d.total() * d.each());
  reduce_tree({d.c.dtype, d.c.op, {d.c.prescale, d.c.postscale, d.c.divisor}}, canonical_tree(ids), inputs,
              d.blocks.data(), d.total());
}

// A member's input and output in a given kind of memory.
class Blocks {
 public:
  Blocks(Group& group, const Case& d, std::size_t member) : c_(d.c) {
    const Bytes& in = d.inputs[member];
    out_bytes_ = (d.gathers() ? d.total() : d.c.counts[member]) * d.each();
    const std::size_t place = d.begin_of(member) * d.each(), whole = d.total() * d.each();
    own_.resize(in.size() + out_bytes_ + d.each());
    std::byte *from = own_.data(), *to = own_.data() + in.size();
    if (d.memory[member] == Memory::kBuckets) {
      ins_ = group.allocate(in.size()), outs_ = group.allocate(out_bytes_);
      from = ins_.data.get(), to = outs_.data.get();
    } else if (d.memory[member] == Memory::kInPlace) {
      ins_ = group.allocate(whole);
      from = ins_.data.get() + (d.gathers() ? place : 0), to = ins_.data.get() + (d.gathers() ? 0 : place);
    } else if (d.memory[member] == Memory::kOverlapping) {
      to = own_.data() + d.each();
    }
    if (!in.empty()) std::memcpy(from, in.data(), in.size());
    c_.in = {from, in.size()}, c_.out = {to, out_bytes_};
    if (!d.gathers() && c_.contributors[member] == kAbsent) c_.in = {};
  }
  const Collective& collective() const { return c_; }
  Bytes result() const { return {c_.out.data, c_.out.data + out_bytes_}; }

 private:
  Bytes own_;
  Allocation ins_, outs_;
  std::size_t out_bytes_ = 0;
  Collective c_;
};

void try_case(Rank& rank, Group& group, const std::vector<int>& hosts, const Case& d) {
  const auto me = static_cast<std::size_t>(rank.index());
  const Blocks blocks(group, d, me);
  group.run(blocks.collective());
  EXPECT_EQ(group.algorithm(d.c) == kTwoLevel, TwoLevelMoves::takes(d.c, hosts, true));
  const auto& ids = d.c.contributors;
  if (!d.gathers() && std::all_of(ids.begin(), ids.end(), [](auto id) { return id == kAbsent; })) return;
  const auto own = d.blocks.begin() + static_cast<std::ptrdiff_t>(d.begin_of(me) * d.each());
  const auto end = own + static_cast<std::ptrdiff_t>(d.c.counts[me] * d.each());
  ASSERT_TRUE(blocks.result() == (d.gathers() ? d.blocks : Bytes(own, end)))
      << name_of(d.c.kind) << ", rank " << rank.index() << " of " << hosts.size() << ", seed " << d.seed << ", "
      << name_of(d.c.dtype) << ", " << name_of(d.c.op);
}

void try_cases(const std::vector<int>& hosts, const Config& config, unsigned cases) {
  std::mt19937 random(5);
  std::vector<Case> all;
  for (unsigned seed = 0; seed < cases; ++seed) {
    add_values(all.emplace_back(draw_case(random, seed % 2 == 0 ? kGather : kScatter, hosts, seed / 2)));
  }
  run_ranks_well({static_cast<int>(hosts.size()), Wire::kShm, always(config)}, [&](Rank& rank) {
    const auto group = group_of(rank, hosts);
    for (const Case& d : all) {
      if (!testing::Test::HasFailure()) try_case(rank, *group, hosts, d);
    }
  });
}

TEST(TwoLevelMoves, GivesTheBitsOfOneSumForEveryLayoutOfHosts) {
  for (const auto& hosts : kLayouts) try_cases(hosts, {}, test::kSanitized ? 8u : 32u);
  Config past_caches;
  past_caches.shm_past_caches = "on";
  try_cases(kPairs, past_caches, test::kSanitized ? 8u : 32u);
}

// A collective of float32 ones with `count` elements of each member.
class Ones {
 public:
  Ones(CollectiveKind kind, std::size_t size, std::size_t count, std::uint64_t plan)
      : in_(kind == kGather ? count : size * count, 1.f), out_(kind == kGather ? size * count : count) {
    c.kind = kind;
    c.counts.assign(size, count);
    for (std::size_t member = 0; member < size; ++member) c.contributors.push_back(static_cast<std::int64_t>(member));
    c.in = {reinterpret_cast<std::byte*>(in_.data()), in_.size() * sizeof(float)};
    c.out = {reinterpret_cast<std::byte*>(out_.data()), out_.size() * sizeof(float)};
    c.plan = plan;
    c.deadline = test::soon();
  }
  bool is_right() const {
    const float expected = c.kind == kGather ? 1.f : static_cast<float>(c.counts.size());
    return out_ == std::vector<float>(out_.size(), expected);
  }

  Collective c;

 private:
  std::vector<float> in_, out_;
};

void expect_ones(Rank& rank, Group& group, CollectiveKind kind, std::size_t count, std::uint64_t plan) {
  const Ones ones(kind, static_cast<std::size_t>(group.size()), count, plan);
  group.run(ones.c);
  EXPECT_TRUE(ones.is_right()) << name_of(kind) << ", " << count << ", rank " << rank.index();
}

// The bytes that members send to other hosts in a collective.
std::uint64_t sent_between_hosts(const std::vector<int>& hosts, CollectiveKind kind, const std::string& algorithms) {
  constexpr std::size_t kCount = 300'000;
  std::atomic<std::uint64_t> sent{0}, inside{0};
  Config config;
  config.algorithms = algorithms;
  run_ranks_well({static_cast<int>(hosts.size()), Wire::kShm, config}, [&](Rank& rank) {
    const auto group = group_of(rank, hosts);
    expect_ones(rank, *group, kind, kCount, 1);  // the members exchange the offsets of their control blocks
    const std::uint64_t before = rank.transport().traffic(0).bytes_sent;
    expect_ones(rank, *group, kind, kCount, 2);
    sent += rank.transport().traffic(0).bytes_sent - before;
    const int host = hosts[static_cast<std::size_t>(rank.index())];
    const auto neighbours = static_cast<std::uint64_t>(std::count(hosts.begin(), hosts.end(), host)) - 1;
    if (!algorithms.empty()) inside += neighbours * kCount * sizeof(float);
  });
  return sent - inside;
}

// Over messages each member of a host exchanges the blocks of the other hosts. In two levels the host does so once.
TEST(TwoLevelMoves, EachBlockCrossesOnceToEveryOtherHost) {
  const auto at_most = [](const std::vector<int>& hosts, double share) {
    for (const auto& [kind, name] : {std::tuple{kGather, "all_gather"}, {kScatter, "reduce_scatter"}}) {
      const auto direct = sent_between_hosts(hosts, kind, std::string(name) + "=direct");
      const auto now = sent_between_hosts(hosts, kind, "");
      EXPECT_LE(static_cast<double>(now), share * 1.001 * static_cast<double>(direct)) << name << ", " << now;
      EXPECT_GE(static_cast<double>(now), share * 0.99 * static_cast<double>(direct)) << name << ", " << now;
    }
  };
  at_most(kPairs, 0.5);
  at_most({0, 0, 0, 0, 1, 1, 1, 1}, 0.25);
  at_most({0, 0, 1, 1, 2, 2}, 0.5);
}

// Partial sums of 16-bit floats travel as float32: two members of a host would save nothing.
TEST(TwoLevelMoves, AReduceScatterRunsWhereItSendsFewerBytes) {
  const auto takes = [](const std::vector<int>& hosts, DType dtype) {
    Ones ones(kScatter, hosts.size(), 1, 0);
    ones.c.dtype = dtype;
    return TwoLevelMoves::takes(ones.c, hosts, true);
  };
  EXPECT_TRUE(takes(kPairs, DType::kFloat32));
  EXPECT_FALSE(takes(kPairs, DType::kBFloat16));
  EXPECT_TRUE(takes({0, 0, 0, 0, 1, 1, 1, 1}, DType::kBFloat16));
  EXPECT_FALSE(takes({0, 0, 0, 0, 1, 1, 1, 1}, DType::kFloat8E4m3));
  EXPECT_FALSE(takes({0, 1, 0, 1}, DType::kFloat32));
}

TEST(TwoLevelMoves, IsTakenForItsOverrideAndNotForAnother) {
  for (const auto& [overrides, transport, taken] :
       {std::tuple{"all_gather=two-level,reduce_scatter=two-level", "shm", true},
        {"", "shm", true},
        {"", "tcp", false},
        {"all_gather=two-level,reduce_scatter=two-level", "tcp", false},
        {"all_gather=direct,reduce_scatter=direct", "shm", false}}) {
    Config config;
    config.algorithms = overrides;
    run_ranks_well(
        {4, Wire::kShm, config}, [&, overrides = overrides, transport = transport, taken = taken](Rank& rank) {
          rank.config.transport = transport;
          const auto group = group_of(rank, kPairs);
          for (const CollectiveKind kind : {kGather, kScatter}) {
            expect_ones(rank, *group, kind, 50'000, 1);
            EXPECT_EQ(group->algorithm(Ones(kind, 4, 50'000, 2).c) == kTwoLevel, taken) << transport;
            const bool is_asked = std::string(overrides).find("two-level") != std::string::npos;
            EXPECT_EQ(group->algorithm(Ones(kind, 4, 5'000, 2).c) == kTwoLevel, taken && is_asked) << transport;
          }
        });
  }
}

// All kinds share a host's memory.
TEST(TwoLevelMoves, FollowsAndPrecedesOtherCollectives) {
  run_ranks_well({4, Wire::kShm, always()}, [](Rank& rank) {
    const auto group = group_of(rank, {0, 1, 0, 1});
    for (std::uint64_t plan = 0; plan < 60; ++plan) {
      const std::size_t count = plan * plan * 50;
      Ones ones(plan % 2 == 0 ? kGather : kScatter, 4, count, plan);
      ones.c.order = Order::kFast;
      if (plan % 3 == 0) {
        ones.c.kind = CollectiveKind::kAllReduce;
        ones.c.counts = {count};
      }
      group->run(ones.c);
      EXPECT_EQ(group->algorithm(ones.c), kTwoLevel);
      EXPECT_TRUE(plan % 3 == 0 || ones.is_right()) << plan;
    }
  });
}

constexpr std::size_t kFewCounts[] = {0, 1, 600, 400'000};

// A member differs from the other one of its host, or one host from the other.
TEST(TwoLevelMoves, ADifferenceIsAMismatchOnAllHostsAndTheNextCollectiveWorks) {
  for (const std::size_t count : kFewCounts) {
    for (const std::vector<int>& differ : {std::vector<int>{1}, {2, 3}, {0, 1, 2}, {4}}) {
      run_ranks_well({5, Wire::kShm, always()}, [&](Rank& rank) {
        const auto group = group_of(rank, {0, 0, 1, 1, 2});
        const bool differs = std::count(differ.begin(), differ.end(), rank.index()) > 0;
        for (std::uint64_t plan = 0; plan < 12; plan += 6) {
          const CollectiveKind kind = plan == 0 ? kGather : kScatter;
          expect_ones(rank, *group, kind, count, plan);
          Ones other(kind, 5, count, plan + 1);
          other.c.key_hash = differs ? 7 : 6;
          EXPECT_THROW(group->run(other.c), Mismatch) << count << ", rank " << rank.index();
          expect_ones(rank, *group, kind, count, plan + 2);
          const Ones longer(kind, 5, differs ? count + 90'000 : count, plan + 3);
          EXPECT_THROW(group->run(longer.c), Mismatch) << count << ", rank " << rank.index();
          expect_ones(rank, *group, kind, count, plan + 4);
        }
      });
    }
  }
}

TEST(TwoLevelMoves, ALateRankEndsItOnAllHosts) {
  for (const CollectiveKind kind : {kGather, kScatter}) {
    const auto errors = run_ranks({4, Wire::kShm, always()}, [&](Rank& rank) {
      const auto group = group_of(rank, kPairs);
      expect_ones(rank, *group, kind, 9'000, 0);
      Ones ones(kind, 4, 9'000, 1);
      if (rank.index() == 2) ones.c.deadline = Clock::now() + std::chrono::milliseconds(100);
      const TimePoint late = Clock::now() + std::chrono::milliseconds(400);
      while (rank.index() == 3 && Clock::now() < late) std::this_thread::yield();
      group->run(ones.c);
    });
    EXPECT_THAT(test::message_of(errors[2]), HasSubstr("still waiting in shared memory for rank 3"));
    for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(test::origin_of(errors[static_cast<std::size_t>(rank)]), 3) << rank;
  }
}

// At any point from the exchange of offsets to the last cell.
TEST(TwoLevelMoves, ARankThatDiesDuringItIsNamedByAll) {
  for (int allowed = 0; allowed < 60; allowed += test::kSanitized ? 20 : 5) {
    for (const CollectiveKind kind : {kGather, kScatter}) {
      const auto errors = run_ranks({4, Wire::kShm, always()}, [&](Rank& rank) {
        DyingTransport dying(rank.transport(), rank.index() == 2 ? allowed : 1 << 30);
        const auto group = make_transport_group(dying, {everybody(4), 0, kPairs, usual_costs(), rank.links.arenas},
                                                rank.config, rank.counters);
        for (std::uint64_t plan = 0; plan < 8; ++plan) expect_ones(rank, *group, kind, 400'000, plan);
      });
      for (const int rank : {0, 1, 3}) {
        const auto& error = errors[static_cast<std::size_t>(rank)];
        EXPECT_EQ(test::origin_of(error), 2) << allowed << ", rank " << rank << ": " << test::message_of(error);
      }
    }
  }
}

}  // namespace
}  // namespace horo::two_level_moves_test
