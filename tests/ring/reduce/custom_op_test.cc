// Custom operations: the canonical tree, lower ids on the left, and whole tensors where required.

#include "ring/reduce/custom_op.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <numeric>
#include <stdexcept>

#include "horo/base/say.h"
#include "ring/algorithms/messages.h"
#include "ring/schedule/schedule_parts.h"
#include "tests/ring/run_ranks.h"

namespace horo::test {
namespace {

using Values = std::vector<std::uint32_t>;

// Neither commutative nor associative, so every change of the tree changes the result.
std::uint32_t mix(std::uint32_t a, std::uint32_t b) {
  return (a ^ 0x9e3779b9u) * 31u + b;
}

int mix_all(std::byte* accumulator, const std::byte* value, std::uint64_t count, DType) {
  auto* a = reinterpret_cast<std::uint32_t*>(accumulator);
  const auto* b = reinterpret_cast<const std::uint32_t*>(value);
  for (std::uint64_t i = 0; i < count; ++i) a[i] = mix(a[i], b[i]);
  return 0;
}

// Each element of the result needs all of both tensors.
int mix_whole(std::byte* accumulator, const std::byte* value, std::uint64_t count, DType dtype) {
  auto* a = reinterpret_cast<std::uint32_t*>(accumulator);
  const std::uint32_t sum = std::accumulate(a, a + count, 0u);
  mix_all(accumulator, value, count, dtype);
  for (std::uint64_t i = 0; i < count; ++i) a[i] += sum;
  return 0;
}

const CustomOp kMix{"mix", false, mix_all};
const CustomOp kMixWhole{"mix whole", true, mix_whole};

Values input_of(int member, std::size_t count) {
  Values values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<std::uint32_t>(i * 2654435761u) + 17u * member;
  return values;
}

// The binary trie by its definition, with the operation at its joins.
Values oracle(const CustomOp& op, const std::vector<std::int64_t>& ids, std::size_t count, int bit = 62) {
  if (ids.size() == 1) return input_of(static_cast<int>(ids[0]), count);
  std::vector<std::int64_t> low, high;
  for (const std::int64_t id : ids) (id >> bit & 1 ? high : low).push_back(id);
  if (low.empty() || high.empty()) return oracle(op, ids, count, bit - 1);
  Values left = oracle(op, low, count, bit - 1);
  const Values right = oracle(op, high, count, bit - 1);
  op.combine(reinterpret_cast<std::byte*>(left.data()), reinterpret_cast<const std::byte*>(right.data()), count,
             DType::kUint32);
  return left;
}

Collective collective(CollectiveKind kind, const CustomOp& op, int size, std::size_t count) {
  Collective c;
  c.kind = kind;
  c.op = ReduceOp::kCustom;
  c.custom = &op;
  c.dtype = DType::kUint32;
  c.contributors.resize(static_cast<std::size_t>(size));
  std::iota(c.contributors.begin(), c.contributors.end(), 0);
  c.counts.assign(kind == CollectiveKind::kReduceScatter ? static_cast<std::size_t>(size) : 1, count);
  c.deadline = soon();
  c.what = "tensor 'x'";
  return c;
}

// Runs it in this group, or in the world's, with the input at an odd address; gives the output.
Values run_custom(Rank& rank, Collective c, Group* group = nullptr) {
  const std::size_t total = std::accumulate(c.counts.begin(), c.counts.end(), std::size_t{0});
  const Values mine = input_of(rank.index(), total);
  std::vector<std::byte> in(total * 4 + 1);
  std::memcpy(in.data() + 1, mine.data(), total * 4);
  Values out(c.counts[0]);
  c.in = {in.data() + 1, total * 4};
  c.out = {reinterpret_cast<std::byte*>(out.data()), out.size() * 4};
  (group != nullptr ? *group : *rank.group).run(c);
  return out;
}

WorldOptions world(int size, const std::string& algorithms = "") {
  WorldOptions options{size, Wire::kInProcess, {}};
  options.config.segment_bytes = 1000;
  options.config.algorithms = algorithms;
  return options;
}

TEST(CustomOp, FollowsTheCanonicalTreeInEveryAlgorithm) {
  for (const NamedMaker& maker : all_schedule_makers()) {
    if (maker.kind != CollectiveKind::kAllReduce) continue;
    for (const int size : {1, 2, 3, 5, 8}) {
      run_ranks_well(world(size, std::string("all_reduce=") + maker.name), [](Rank& rank) {
        for (const CustomOp* op : {&kMix, &kMixWhole}) {
          for (Collective c : {collective(CollectiveKind::kAllReduce, *op, rank.size(), 5'003),
                               collective(CollectiveKind::kAllReduce, *op, rank.size(), 1)}) {
            c.plan = (op->whole ? 2u : 0u) + (c.counts[0] == 1 ? 1u : 0u);
            c.order = c.plan % 2 == 0 ? Order::kCanonical : Order::kFast;
            ASSERT_EQ(run_custom(rank, c), oracle(*op, c.contributors, c.counts[0])) << op->name;
          }
        }
      });
    }
  }
}

TEST(CustomOp, FollowsTheCanonicalTreeAcrossHosts) {
  for (const int size : {3, 5, 8}) {
    run_ranks_well(world(size), [](Rank& rank) {
      Members members;
      for (int i = 0; i < rank.size(); ++i) members.ranks.push_back(i), members.hosts.push_back(i / 3);
      Config config = rank.config;
      config.algorithms = "all_reduce=hierarchical";  // which combines parts of tensors
      const auto group = make_transport_group(rank.links, members, config, rank.counters);
      for (const CustomOp* op : {&kMix, &kMixWhole}) {
        Collective c = collective(CollectiveKind::kAllReduce, *op, rank.size(), 9'001);
        c.plan = op->whole ? 1 : 0;
        ASSERT_NE(group->algorithm(c) == "hierarchical", op->whole);
        ASSERT_EQ(run_custom(rank, c, group.get()), oracle(*op, c.contributors, 9'001)) << op->name;
      }
    });
  }
}

TEST(CustomOp, WorksInReduceScatter) {
  for (const int size : {1, 2, 3, 6}) {
    run_ranks_well(world(size), [](Rank& rank) {
      std::uint64_t plan = 0;
      for (const CustomOp* op : {&kMix, &kMixWhole}) {
        Collective c = collective(CollectiveKind::kReduce, *op, rank.size(), 3'001);
        c.root = rank.size() - 1;
        c.plan = plan++;
        const Values at_root = run_custom(rank, c);
        const bool is_root = rank.index() == c.root;
        ASSERT_TRUE(!is_root || at_root == oracle(*op, c.contributors, 3'001)) << op->name;

        c = collective(CollectiveKind::kReduceScatter, *op, rank.size(), 1'001);
        c.plan = plan++;
        const Values all = oracle(*op, c.contributors, 1'001 * static_cast<std::size_t>(rank.size()));
        const auto begin = all.begin() + 1'001 * rank.index();
        ASSERT_EQ(run_custom(rank, c), Values(begin, begin + 1'001)) << op->name;
      }
    });
  }
}

TEST(CustomOp, ThatNeedsWholeTensorsIsCalledWithWholeTensors) {
  std::atomic<int> pieces{0};
  const CustomOp op{"whole", true, [&](std::byte*, const std::byte*, std::uint64_t count, DType) {
                      pieces += count == 50'000 ? 0 : 1;
                      return 0;
                    }};
  for (const char* wish : {"", "all_reduce=direct", "all_reduce=ring", "all_reduce=halving-doubling"}) {
    run_ranks_well(world(4, wish), [&](Rank& rank) {
      run_custom(rank, collective(CollectiveKind::kAllReduce, op, rank.size(), 50'000));
    });
  }
  EXPECT_EQ(pieces, 0);
}

TEST(CustomOp, AbsentMembersAreSkipped) {
  run_ranks_well(world(5), [](Rank& rank) {
    Collective c = collective(CollectiveKind::kAllReduce, kMix, rank.size(), 2'000);
    c.contributors[1] = c.contributors[4] = kAbsent;
    EXPECT_EQ(run_custom(rank, c), oracle(kMix, {0, 2, 3}, 2'000));
  });
}

// The abort of the transport reaches the other ranks. All messages name operation, collective and tensor.
TEST(CustomOp, ThatFailsOnOneRankEndsAllRanksAndIsNamed) {
  const auto ends = [](const Combining& failing) {
    const auto errors = run_ranks(world(3), [&](Rank& rank) {
      const CustomOp op{"mine", false, rank.index() == 1 ? failing : Combining(mix_all)};
      run_custom(rank, collective(CollectiveKind::kAllReduce, op, rank.size(), 9'000));
    });
    for (const auto& error : errors) {
      EXPECT_NE(message_of(error).find("all_reduce of tensor 'x': operation 'mine'"), std::string::npos)
          << message_of(error);
    }
    EXPECT_EQ(message_of(errors[1]).rfind("all_reduce of tensor 'x': operation 'mine'", 0), 0u);
    EXPECT_EQ(message_of(errors[0]).find("tensor 'x'"), message_of(errors[0]).rfind("tensor 'x'")) << "said once";
    EXPECT_EQ(origin_of(errors[0]), 1);
    EXPECT_EQ(origin_of(errors[2]), 1);
  };
  ends([](std::byte*, const std::byte*, std::uint64_t, DType) { return 3; });
  ends([](std::byte*, const std::byte*, std::uint64_t, DType) -> int { throw std::runtime_error("no such type"); });
  ends([](std::byte*, const std::byte*, std::uint64_t, DType) -> int { throw 5; });
}

std::string refusal(const Collective& c) {
  try {
    check(c, 1, 0);
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "";
}

TEST(CustomOp, ContradictionsAreRefused) {
  std::uint32_t value = 0;
  const Buffer buffer{reinterpret_cast<std::byte*>(&value), 4};
  Collective c = collective(CollectiveKind::kAllReduce, kMix, 1, 1);
  c.in = c.out = buffer;
  EXPECT_EQ(refusal(c), "");
  c.prescale = 2;
  EXPECT_EQ(refusal(c),
            "all_reduce of tensor 'x': operation 'mix' does not support factors, prescale is 2 and postscale 1, "
            "expected 1");
  c.prescale = 1;
  c.op = ReduceOp::kSum;
  EXPECT_EQ(refusal(c), "all_reduce of tensor 'x': a custom operation is given beside another operation");
  c.op = ReduceOp::kCustom;
  c.custom = nullptr;
  EXPECT_EQ(refusal(c), "all_reduce of tensor 'x': the operation is custom, but none is given");
  const CustomOp empty{"empty", false, {}};
  c.custom = &empty;
  EXPECT_EQ(refusal(c), "operation 'empty': combine is null");
}

TEST(CustomOp, IsCalledWithAlignedMemory) {
  for (std::size_t offset = 0; offset < 16; ++offset) {
    std::vector<std::byte> memory(3 * 1000 * 16 + 64);
    bool aligned = true;
    const CustomOp op{"look", false, [&](std::byte* a, const std::byte* b, std::uint64_t, DType dtype) {
                        aligned &= reinterpret_cast<std::uintptr_t>(a) % size_of(dtype) == 0 &&
                                   reinterpret_cast<std::uintptr_t>(b) % size_of(dtype) == 0;
                        return 0;
                      }};
    for (const DType dtype : {DType::kInt16, DType::kFloat32, DType::kFloat64, DType::kComplex128}) {
      std::vector<TreeInput> inputs;
      for (std::size_t i = 0; i < 3; ++i) inputs.push_back({memory.data() + offset + i * 1000 * 16});
      Reduction reduction{dtype, ReduceOp::kCustom, {}};
      reduction.custom = &op;
      reduce_tree(reduction, canonical_tree(std::vector<std::int64_t>{0, 1, 2}), inputs, memory.data() + offset, 1000);
    }
    EXPECT_TRUE(aligned) << offset;
  }
}

}  // namespace
}  // namespace horo::test
