// Results that stay divided among the members: the same bits as those of run(), the reuse of shards, and the way back
// if a member has no memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "horo/base/error.h"
#include "ring/sharded_result.h"
#include "tests/effort.h"
#include "tests/ring/reduce/small_values.h"
#include "tests/ring/run_ranks.h"

namespace horo {
namespace {

using test::Rank;
using test::run_ranks;
using test::run_ranks_well;
using test::Wire;

TEST(ShardLayout, TheShardsTileTheResult) {
  for (const std::size_t bytes : {64u, 65'536u, 65'540u, 999'936u, 1'048'576u, 5'000'004u}) {
    for (const int members : {2, 3, 16}) {
      const ShardLayout layout{bytes, bytes < (1 << 20) ? std::size_t{65'536} : std::size_t{262'144}, members};
      std::vector<std::vector<std::byte>> shards;
      for (int member = 0; member < members; ++member) shards.emplace_back(layout.shard_bytes(member));
      std::vector<std::byte> result(bytes);
      for (std::size_t i = 0; i < bytes; ++i) result[i] = static_cast<std::byte>(i * 7 + i / 251);
      std::size_t placed = 0;
      for (std::size_t k = 0; k * layout.chunk_bytes < bytes; ++k) {
        for (int member = 0; member < members; ++member) {
          const Shard part = layout.part(k, member);
          ASSERT_LE(layout.place(k, member) + part.size, layout.shard_bytes(member));
          const std::byte* const from = result.data() + layout.chunk(k).begin + part.begin;
          std::copy_n(from, part.size, shards[static_cast<std::size_t>(member)].data() + layout.place(k, member));
          placed += part.size;
        }
      }
      ASSERT_EQ(placed, bytes);
      ShardedResult sharded{layout, {}};
      for (const auto& shard : shards) sharded.shards.push_back(shard.data());
      std::vector<std::byte> read(bytes);
      for (std::size_t begin = 0, step = 1; begin < bytes; begin += step, step = step * 3 + 1) {
        sharded.read(begin, std::min(step, bytes - begin), read.data() + begin);
      }
      EXPECT_EQ(read, result) << bytes << " bytes, " << members << " members";
    }
  }
}

enum class Memory { kBucket, kOwn, kMixed, kPieces };

struct Sample {
  DType dtype = DType::kFloat32;
  std::size_t count = 0;
  Memory where = Memory::kOwn;
};

template <class Random>
Sample sample(Random& random) {
  constexpr std::array types = {DType::kFloat32, DType::kFloat64, DType::kBFloat16, DType::kInt32, DType::kUint8};
  constexpr std::array<std::size_t, 4> counts = {65'536, 70'001, 300'000, 1'000'003};
  constexpr std::array places = {Memory::kBucket, Memory::kOwn, Memory::kMixed, Memory::kPieces};
  return {types[random() % types.size()], counts[random() % counts.size()], places[random() % places.size()]};
}

Collective sum_of(const Sample& d, int size, std::byte* data) {
  Collective c;
  c.dtype = d.dtype;
  c.counts = {d.count};
  c.in = c.out = {data, d.count * size_of(d.dtype)};
  for (int rank = 0; rank < size; ++rank) c.contributors.push_back(3 * rank);
  c.deadline = test::soon();
  return c;
}

Collective barrier_of(int size) {
  Collective c;
  c.kind = CollectiveKind::kBarrier;
  for (int rank = 0; rank < size; ++rank) c.contributors.push_back(3 * rank);
  c.deadline = test::soon();
  return c;
}

std::vector<Piece> halves_of(std::byte* data, std::size_t bytes, std::size_t each) {
  const std::size_t first = bytes / each / 3 * each;
  return {{data, data, first}, {data, data, 0}, {data + first, data + first, bytes - first}};
}

void try_one(Rank& rank, const Sample& d, unsigned seed, Allocation& shard) {
  const auto mine = test::small_values(d.dtype, d.count, seed * 100 + static_cast<unsigned>(rank.index()));
  std::vector<std::byte> expected = mine, memory = mine, read(mine.size());
  rank.group->run(sum_of(d, rank.size(), expected.data()));
  const bool in_bucket = d.where == Memory::kBucket || (d.where == Memory::kMixed && rank.index() % 2 == 0);
  const Allocation bucket = in_bucket ? rank.group->allocate(mine.size()) : Allocation();
  if (in_bucket) std::memcpy(bucket.data.get(), mine.data(), mine.size());
  Collective c = sum_of(d, rank.size(), in_bucket ? bucket.data.get() : memory.data());
  const auto pieces = halves_of(memory.data(), mine.size(), size_of(d.dtype));
  if (d.where == Memory::kPieces) c.pieces = pieces;
  const std::size_t bytes = rank.group->sharded()->shard_bytes(c);
  ASSERT_GT(bytes, 0u);
  if (shard.bytes < bytes) shard = rank.group->sharded()->allocate_shard(bytes);
  ShardedResult result;
  ASSERT_TRUE(rank.group->sharded()->reduce_to_shards(c, {shard.data.get(), bytes}, result));
  rank.group->run(barrier_of(rank.size()));
  EXPECT_EQ(std::memcmp(c.in.data, mine.data(), mine.size()), 0) << "the input is not written";
  const std::size_t cut = mine.size() / 5;
  result.read(cut, mine.size() - cut, read.data() + cut);
  result.read(0, cut, read.data());
  EXPECT_EQ(read, expected) << "rank " << rank.index() << " of " << rank.size() << ", seed " << seed;
}

TEST(ReduceToShards, TheBitsAreThoseOfAnAllReduceAndAShardIsUsedAgain) {
  for (const int size : {2, 3, 4, 5}) {
    run_ranks_well({size, Wire::kShm, {}}, [](Rank& rank) {
      std::mt19937 random(11);
      Allocation shard;
      for (unsigned seed = 0; seed < test::effort(12u); ++seed) try_one(rank, sample(random), seed, shard);
    });
  }
}

TEST(ReduceToShards, WithoutMemoryOfOneRankItEndsOnAllAndTheNextOneWorks) {
  run_ranks_well({3, Wire::kShm, {}}, [](Rank& rank) {
    std::vector<std::byte> data(400'000);
    const Collective c = sum_of({DType::kFloat32, 100'000, Memory::kOwn}, rank.size(), data.data());
    rank.group->run(c);
    Allocation shard = rank.group->sharded()->allocate_shard(rank.group->sharded()->shard_bytes(c));
    ShardedResult result;
    const Buffer none;
    const Buffer own{shard.data.get(), shard.bytes};
    EXPECT_FALSE(rank.group->sharded()->reduce_to_shards(c, rank.index() == 1 ? none : own, result));
    EXPECT_TRUE(result.is_empty());
    try_one(rank, {DType::kFloat32, 100'000, Memory::kOwn}, 1, shard);
  });
}

TEST(ReduceToShards, AnAllReduceOfAnotherRankUnderTheSamePlanIsAMismatch) {
  run_ranks_well({2, Wire::kShm, {}}, [](Rank& rank) {
    std::vector<std::byte> data(400'000);
    const Collective c = sum_of({DType::kFloat32, 100'000, Memory::kOwn}, rank.size(), data.data());
    rank.group->run(c);
    Allocation shard = rank.group->sharded()->allocate_shard(rank.group->sharded()->shard_bytes(c));
    ShardedResult result;
    if (rank.index() == 0) {
      EXPECT_THROW(rank.group->run(c), Mismatch);
    } else {
      EXPECT_THROW(rank.group->sharded()->reduce_to_shards(c, {shard.data.get(), shard.bytes}, result), Mismatch);
    }
    try_one(rank, {DType::kFloat32, 100'000, Memory::kOwn}, 1, shard);
  });
}

TEST(ReduceToShards, IsNotForShortTensorsOtherKindsAndMessages) {
  for (const Wire wire : {Wire::kShm, Wire::kTcp}) {
    run_ranks_well({2, wire, {}}, [wire](Rank& rank) {
      std::vector<std::byte> data(400'000);
      Collective c = sum_of({DType::kFloat32, 100'000, Memory::kOwn}, rank.size(), data.data());
      rank.group->run(c);
      EXPECT_EQ(rank.group->sharded()->shard_bytes(c) > 0, wire == Wire::kShm);
      c.counts = {1'000};
      EXPECT_EQ(rank.group->sharded()->shard_bytes(c), 0u);
      c.counts = {100'000};
      c.kind = CollectiveKind::kBroadcast;
      EXPECT_EQ(rank.group->sharded()->shard_bytes(c), 0u);
    });
  }
}

}  // namespace
}  // namespace horo
