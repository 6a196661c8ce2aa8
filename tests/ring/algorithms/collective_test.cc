// Collectives over all wires against exact references, with random kinds, types, sizes, offsets and members.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>

#include "horo/base/shard.h"
#include "ring/reduce/reduce.h"
#include "tests/ring/run_ranks.h"

namespace horo::test {
namespace {

using Bytes = std::vector<std::byte>;

Buffer buffer(Bytes& bytes, std::size_t offset = 0) {
  return {bytes.data() + offset, bytes.size() - offset};
}

template <class T>
Bytes bytes_of(const std::vector<int>& values) {
  const std::vector<T> typed(values.begin(), values.end());
  const auto* begin = reinterpret_cast<const std::byte*>(typed.data());
  return {begin, begin + typed.size() * sizeof(T)};
}

// Random elements of a type whose sums and products are exact in every order: small integers.
Bytes small_numbers(DType dtype, std::size_t count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<int> values(is_complex(dtype) ? 2 * count : count);
  std::generate(values.begin(), values.end(), [&] { return static_cast<int>(random() % 5); });
  if (dtype == DType::kFloat64 || dtype == DType::kComplex128) return bytes_of<double>(values);
  if (dtype == DType::kFloat32 || dtype == DType::kComplex64) return bytes_of<float>(values);
  Bytes bytes(count * size_of(dtype));
  if (accumulator_of(dtype) == DType::kFloat32) {
    const Bytes wide = bytes_of<float>(values);
    const TreeInput input{wide.data(), true};
    const TreeStep leaf{0};
    reduce_tree({dtype, ReduceOp::kSum, {}}, {&leaf, 1}, {&input, 1}, bytes.data(), count);
  } else {
    for (std::size_t i = 0; i < count; ++i) {
      bytes[i * size_of(dtype)] = static_cast<std::byte>(dtype == DType::kBool ? values[i] % 2 : values[i]);
    }
  }
  return bytes;
}

std::vector<std::int64_t> ids_of(int size) {
  std::vector<std::int64_t> ids(static_cast<std::size_t>(size));
  std::iota(ids.begin(), ids.end(), 0);
  return ids;
}

Collective reduction(CollectiveKind kind, DType dtype, ReduceOp op, int size) {
  Collective c;
  c.kind = kind;
  c.dtype = dtype;
  c.op = op;
  c.contributors = ids_of(size);
  c.divisor = size;
  c.deadline = soon();
  return c;
}

// The sum of the members' inputs: one call of the kernel in canonical order.
Bytes oracle(const Collective& c, const std::vector<Bytes>& inputs, std::size_t count) {
  std::vector<TreeInput> present;
  std::vector<std::int64_t> ids;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (c.contributors[i] == kAbsent) continue;
    ids.push_back(c.contributors[i]);
    present.push_back({inputs[i].data()});
  }
  Bytes out(count * size_of(c.dtype));
  reduce_tree({c.dtype, c.op, {c.prescale, c.postscale, c.divisor}}, canonical_tree(ids), present, out.data(), count);
  return out;
}

struct Case {
  Wire wire;
  int size;
};

class Collectives : public testing::TestWithParam<Case> {
 protected:
  WorldOptions options(std::size_t segment_bytes = 256 << 10) const {
    WorldOptions options{GetParam().size, GetParam().wire, {}};
    options.config.segment_bytes = segment_bytes;
    return options;
  }
};

std::string case_name(const testing::TestParamInfo<Case>& info) {
  return name_of(info.param.wire) + std::to_string(info.param.size);
}

std::vector<Case> cases() {
  std::vector<Case> cases;
  for (const Wire wire : {Wire::kInProcess, Wire::kTcp, Wire::kShm, Wire::kMpi}) {
    for (int size = 1; size <= 8; ++size) cases.push_back({wire, size});
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Worlds, Collectives, testing::ValuesIn(cases()), case_name);

TEST_P(Collectives, AllReduceMatchesTheOracleForEveryTypeOpAndOrder) {
  run_ranks_well(options(64), [](Rank& rank) {
    std::uint64_t plan = 0;
    for (int pair = 0; pair < 17 * 9; ++pair) {
      const DType dtype = *dtype_from(pair / 9);
      const auto op = reduce_op_from(pair % 9);
      if (!op || *op == ReduceOp::kAdasum || !supports(dtype, *op)) continue;
      for (const Order order : {Order::kCanonical, Order::kFast}) {
        // The sign of a zero in a complex product depends on the order.
        if (order == Order::kFast && is_complex(dtype) && op == ReduceOp::kProduct) continue;
        const std::size_t count = (plan * 7) % 250;
        std::vector<Bytes> inputs;
        for (int i = 0; i < rank.size(); ++i)
          inputs.push_back(small_numbers(dtype, count, plan * 100 + static_cast<std::uint64_t>(i)));
        Collective c = reduction(CollectiveKind::kAllReduce, dtype, *op, rank.size());
        Bytes data = inputs[static_cast<std::size_t>(rank.index())];
        c.order = order;
        c.in = c.out = buffer(data);
        c.counts = {count};
        c.plan = plan++;
        rank.group->run(c);
        ASSERT_EQ(data, oracle(c, inputs, count)) << name_of(dtype) << " " << name_of(*op) << " " << name_of(order);
      }
    }
  });
}

// Sums of random floats depend on the order of summation, so equal bits imply the same order.
Bytes random_floats(std::size_t count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  Bytes bytes(count * 4);
  for (std::size_t i = 0; i < count; ++i) {
    const float value = std::ldexp(normal(random), static_cast<int>(random() % 40) - 20);
    std::memcpy(bytes.data() + i * 4, &value, 4);
  }
  return bytes;
}

TEST_P(Collectives, EveryRankEndsWithTheCanonicalBitsForAnySegmentSize) {
  for (const std::size_t segment : {36ul, 500ul, 4096ul, 256ul << 10}) {
    run_ranks_well(options(segment), [segment](Rank& rank) {
      const std::size_t count = std::clamp<std::size_t>(segment * 40, 9'001, 70'001);
      std::vector<Bytes> inputs;
      for (int i = 0; i < rank.size(); ++i) inputs.push_back(random_floats(count, static_cast<std::uint64_t>(i)));
      Collective c = reduction(CollectiveKind::kAllReduce, DType::kFloat32, ReduceOp::kAverage, rank.size());
      Bytes& mine = inputs[static_cast<std::size_t>(rank.index())];
      const Bytes before = mine;
      Bytes out(mine.size());
      c.in = buffer(mine);
      c.out = buffer(out);
      c.counts = {count};
      c.prescale = 0.3;
      c.postscale = 1.7;
      rank.group->run(c);
      EXPECT_EQ(mine, before) << "in is never written";
      EXPECT_EQ(out, oracle(c, inputs, count));
    });
  }
}

// The size determines whether shards, whole inputs or several segments are sent; the bits are the same.
TEST_P(Collectives, EverySizeGivesTheCanonicalBits) {
  run_ranks_well(options(16 << 10), [](Rank& rank) {
    std::uint64_t plan = 0;
    for (const std::size_t count : {0, 1, 7, 8, 1023, 1024, 1025, 8192, 8193, 100'003}) {
      std::vector<Bytes> inputs;
      for (int i = 0; i < rank.size(); ++i) inputs.push_back(random_floats(count, static_cast<std::uint64_t>(i)));
      Collective c = reduction(CollectiveKind::kAllReduce, DType::kFloat32, ReduceOp::kSum, rank.size());
      Bytes& mine = inputs[static_cast<std::size_t>(rank.index())];
      Bytes data = mine;
      c.in = c.out = buffer(data);
      c.counts = {count};
      c.plan = plan++;
      rank.group->run(c);
      ASSERT_EQ(data, oracle(c, inputs, count)) << count;
    }
  });
}

TEST_P(Collectives, AbsentMembersAreSkippedAndStillGetTheResult) {
  run_ranks_well(options(256), [](Rank& rank) {
    for (std::uint64_t mask = 0; mask < (1u << std::min(rank.size(), 4)); ++mask) {
      for (const Order order : {Order::kCanonical, Order::kFast}) {
        const std::size_t count = mask % 2 == 0 ? 333 : 20'001;
        std::vector<Bytes> inputs;
        for (int i = 0; i < rank.size(); ++i)
          inputs.push_back(small_numbers(DType::kFloat16, count, mask * 10 + static_cast<std::uint64_t>(i)));
        Collective c = reduction(CollectiveKind::kAllReduce, DType::kFloat16, ReduceOp::kSum, rank.size());
        for (int i = 0; i < rank.size(); ++i)
          c.contributors[static_cast<std::size_t>(i)] = mask >> i & 1 ? kAbsent : 3 * i + 1;
        Bytes data = inputs[static_cast<std::size_t>(rank.index())];
        const bool all_absent = std::count(c.contributors.begin(), c.contributors.end(), kAbsent) == rank.size();
        const Bytes expected = all_absent ? data : oracle(c, inputs, count);
        c.order = order;
        c.in = c.out = buffer(data);
        c.counts = {count};
        c.plan = mask * 2 + static_cast<std::uint64_t>(order);
        rank.group->run(c);
        ASSERT_EQ(data, expected) << mask;
      }
    }
  });
}

TEST_P(Collectives, ReduceScatterGivesEachMemberItsRows) {
  run_ranks_well(options(128), [](Rank& rank) {
    for (std::uint64_t plan = 0; plan < 20; ++plan) {
      std::mt19937_64 random(plan);
      std::vector<std::size_t> counts;
      for (int i = 0; i < rank.size(); ++i) counts.push_back(random() % 4 == 0 ? 0 : random() % 900);
      const std::size_t total = std::accumulate(counts.begin(), counts.end(), std::size_t{0});
      std::vector<Bytes> inputs;
      for (int i = 0; i < rank.size(); ++i)
        inputs.push_back(random_floats(total, plan * 10 + static_cast<std::uint64_t>(i)));
      Collective c = reduction(CollectiveKind::kReduceScatter, DType::kFloat32, ReduceOp::kSum, rank.size());
      const Bytes all = oracle(c, inputs, total);
      const auto me = static_cast<std::size_t>(rank.index());
      const std::size_t begin = std::accumulate(counts.begin(), counts.begin() + rank.index(), std::size_t{0});
      Bytes out(counts[me] * 4);
      c.in = buffer(inputs[me]);
      c.out = plan % 3 == 0 ? buffer(out) : plan % 3 == 1 ? c.in : Buffer{c.in.data + begin * 4, counts[me] * 4};
      c.counts = counts;
      c.plan = plan;
      rank.group->run(c);
      ASSERT_EQ(
          Bytes(c.out.data, c.out.data + counts[me] * 4),
          Bytes(all.begin() + static_cast<long>(begin * 4), all.begin() + static_cast<long>((begin + counts[me]) * 4)));
    }
  });
}

TEST_P(Collectives, AllGatherKeepsUnevenBlocksInOrder) {
  run_ranks_well(options(100), [](Rank& rank) {
    for (std::uint64_t plan = 0; plan < 10; ++plan) {
      std::vector<std::size_t> counts;
      Bytes expected;
      for (int i = 0; i < rank.size(); ++i) {
        counts.push_back((plan * 31 + static_cast<std::uint64_t>(i) * 17) % 5 * 100);
        const Bytes block = small_numbers(DType::kInt8, counts.back(), plan * 10 + static_cast<std::uint64_t>(i));
        expected.insert(expected.end(), block.begin(), block.end());
      }
      Bytes in = small_numbers(DType::kInt8, counts[static_cast<std::size_t>(rank.index())],
                               plan * 10 + static_cast<std::uint64_t>(rank.index()));
      Bytes out(expected.size());
      Collective c;
      c.kind = CollectiveKind::kAllGather;
      c.dtype = DType::kInt8;
      c.in = buffer(in);
      c.out = buffer(out);
      c.counts = counts;
      c.plan = plan;
      c.deadline = soon();
      rank.group->run(c);
      ASSERT_EQ(out, expected);
    }
  });
}

// The input begins at every possible element of the output: at its place, before it, behind it, or overlapping it.
TEST_P(Collectives, AGatherMayHaveItsInputAnywhereInItsOutput) {
  run_ranks_well(options(100), [](Rank& rank) {
    const auto me = static_cast<std::size_t>(rank.index());
    Collective c;
    c.dtype = DType::kInt8;
    Bytes expected;
    for (int i = 0; i < rank.size(); ++i) {
      c.counts.push_back(150 + 100 * static_cast<std::size_t>(i % 3));
      const Bytes block = small_numbers(DType::kInt8, c.counts.back(), static_cast<std::uint64_t>(i));
      expected.insert(expected.end(), block.begin(), block.end());
    }
    const Bytes mine = small_numbers(DType::kInt8, c.counts[me], me);
    for (std::size_t at = 0; at + 150 <= expected.size(); at += 50, c.plan += 2) {
      for (const CollectiveKind kind : {CollectiveKind::kAllGather, CollectiveKind::kGather}) {
        Bytes out(expected.size());
        const std::size_t begin = std::min(at, out.size() - mine.size());
        std::copy(mine.begin(), mine.end(), out.begin() + static_cast<long>(begin));
        const bool gets = kind == CollectiveKind::kAllGather || rank.index() == rank.size() - 1;
        const Bytes end = gets ? expected : out;
        c.kind = kind;
        c.root = rank.size() - 1;
        c.in = {out.data() + begin, mine.size()};
        c.out = buffer(out);
        c.plan ^= 1;
        c.deadline = soon();
        rank.group->run(c);
        ASSERT_EQ(out, end) << name_of(kind) << " from " << begin;
      }
    }
  });
}

TEST_P(Collectives, BytesBehindTheResultAreNotWritten) {
  run_ranks_well(options(128), [](Rank& rank) {
    const auto size = static_cast<std::size_t>(rank.size());
    for (const bool absent : {false, true}) {
      Bytes data = random_floats(200 * size, 7);
      const Bytes before = data;
      Collective c = reduction(CollectiveKind::kReduceScatter, DType::kFloat32, ReduceOp::kMax, rank.size());
      if (absent) c.contributors.assign(size, kAbsent);
      c.in = c.out = buffer(data);
      c.counts.assign(size, 100);
      c.plan = absent;
      rank.group->run(c);
      const long result = absent ? 0 : 400;
      ASSERT_EQ(Bytes(data.begin() + result, data.end()), Bytes(before.begin() + result, before.end())) << absent;
    }
  });
}

TEST_P(Collectives, BroadcastGivesAllMembersTheBytesOfTheRoot) {
  run_ranks_well(options(1000), [](Rank& rank) {
    for (int root = 0; root < rank.size(); ++root) {
      const std::size_t count = root == 0 ? 0 : 12'345;
      const Bytes expected = random_floats(count, static_cast<std::uint64_t>(root));
      Bytes data = root == rank.index() ? expected : Bytes(count * 4);
      Collective c;
      c.kind = CollectiveKind::kBroadcast;
      c.in = c.out = buffer(data);
      c.counts = {count};
      c.root = root;
      c.plan = static_cast<std::uint64_t>(root);
      c.deadline = soon();
      rank.group->run(c);
      ASSERT_EQ(data, expected);
    }
  });
}

TEST_P(Collectives, NoMemberLeavesABarrierBeforeAllHaveArrived) {
  std::atomic<int> arrived{0};
  run_ranks_well(options(), [&](Rank& rank) {
    for (int round = 1; round <= 20; ++round) {
      ++arrived;
      Collective c;
      c.kind = CollectiveKind::kBarrier;
      c.plan = static_cast<std::uint64_t>(round);
      c.deadline = soon();
      rank.group->run(c);
      ASSERT_GE(arrived.load(), round * rank.size());
    }
  });
}

TEST_P(Collectives, UnalignedBuffersAreLegal) {
  run_ranks_well(options(64), [](Rank& rank) {
    const std::size_t count = 9'001;
    std::vector<Bytes> inputs;
    for (int i = 0; i < rank.size(); ++i) inputs.push_back(random_floats(count, 5 + static_cast<std::uint64_t>(i)));
    for (std::size_t offset = 0; offset < 4; ++offset) {
      Bytes data(count * 4 + offset);
      std::memcpy(data.data() + offset, inputs[static_cast<std::size_t>(rank.index())].data(), count * 4);
      Collective c = reduction(CollectiveKind::kAllReduce, DType::kFloat32, ReduceOp::kSum, rank.size());
      c.in = c.out = buffer(data, offset);
      c.counts = {count};
      c.plan = offset;
      rank.group->run(c);
      ASSERT_EQ(Bytes(data.begin() + static_cast<long>(offset), data.end()), oracle(c, inputs, count));
    }
  });
}

}  // namespace
}  // namespace horo::test
