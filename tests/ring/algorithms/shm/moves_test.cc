// The collectives other than all_reduce in shared memory: the same bytes as over messages for all kinds of buffers, and
// the events that end a wait.
#include "ring/algorithms/shm/moves.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>
#include <thread>

#include "horo/base/error.h"
#include "ring/algorithms/messages.h"
#include "ring/schedule/schedule_parts.h"
#include "tests/effort.h"
#include "tests/ring/reduce/small_values.h"
#include "tests/ring/run_ranks.h"

namespace horo::moves_test {
namespace {

using test::Rank;
using test::run_ranks;
using test::run_ranks_well;
using test::Wire;
using testing::HasSubstr;

constexpr CollectiveKind kKinds[] = {
    CollectiveKind::kBroadcast, CollectiveKind::kReduce,  CollectiveKind::kReduceScatter, CollectiveKind::kAllGather,
    CollectiveKind::kGather,    CollectiveKind::kScatter, CollectiveKind::kAllToAll,      CollectiveKind::kBarrier};
constexpr DType kTypes[] = {DType::kFloat32, DType::kFloat64, DType::kBFloat16, DType::kInt64, DType::kUint8};
constexpr std::size_t kMost[] = {0, 1, 3, 7, 200, 1'025, 5'000, 40'001, 700'000};
constexpr std::byte kGuard{0x5a};
constexpr std::size_t kGuarded = 64;  // bytes behind an output

enum class InPlace { kNo, kSame, kAtItsPlace };

// A collective and, by member, whether its buffers are in an arena.
struct Draw {
  Collective c;
  InPlace in_place = InPlace::kNo;
  std::vector<bool> in_arena, out_arena;
};

std::size_t counts_of(CollectiveKind kind, std::size_t size) {
  if (kind == CollectiveKind::kBarrier) return 0;
  if (kind == CollectiveKind::kAllToAll) return size * size;
  return kind == CollectiveKind::kBroadcast || kind == CollectiveKind::kReduce ? 1 : size;
}

template <class Random>
Draw draw(Random& random, int size) {
  Draw d;
  const auto pick = [&](const auto& from) { return from[random() % std::size(from)]; };
  const auto n = static_cast<std::size_t>(size);
  d.c.kind = pick(kKinds);
  d.c.dtype = pick(kTypes);
  d.c.op = pick(std::array{ReduceOp::kSum, ReduceOp::kAverage, ReduceOp::kMax});
  d.c.divisor = d.c.op == ReduceOp::kAverage ? size : 1.0;
  d.c.root = static_cast<int>(random() % n);
  const std::size_t counts = counts_of(d.c.kind, n);
  const std::size_t most = pick(kMost) / std::max<std::size_t>(1, counts);
  const bool is_even = random() % 2 == 0;
  for (std::size_t i = 0; i < counts; ++i) d.c.counts.push_back(is_even ? most : random() % 4 * most / 2);
  for (int i = 0; i < size; ++i) d.c.contributors.push_back(random() % 6 == 0 ? kAbsent : 2 * i);
  const bool may_place = d.c.kind == CollectiveKind::kAllGather || d.c.kind == CollectiveKind::kGather;
  d.in_place =
      pick(std::array{InPlace::kNo, InPlace::kNo, InPlace::kSame, may_place ? InPlace::kAtItsPlace : InPlace::kNo});
  const auto shared = random() % 4;  // 0: none, 1: all, else some
  for (int i = 0; i < size; ++i) {
    d.in_arena.push_back(shared == 1 || (shared > 1 && random() % 2 == 0));
    d.out_arena.push_back(shared == 1 || (shared > 1 && random() % 2 == 0));
  }
  d.c.deadline = test::soon();
  return d;
}

// A buffer of one member, in its arena or not.
class Memory {
 public:
  Memory(Rank& rank, bool in_arena, std::size_t bytes)
      : shared_(in_arena ? rank.group->allocate(bytes) : Allocation()), own_(in_arena ? 0 : bytes), bytes_(bytes) {
    std::fill_n(data(), bytes, kGuard);
  }
  std::byte* data() { return shared_.data ? shared_.data.get() : own_.data(); }
  std::vector<std::byte> bytes() { return {data(), data() + bytes_}; }

 private:
  Allocation shared_;
  std::vector<std::byte> own_;
  std::size_t bytes_;
};

// The output over messages, and the guard bytes behind it.
std::vector<std::byte> expected(Group& messages, Collective c, std::vector<std::byte> in, std::size_t out_bytes) {
  std::vector<std::byte> out(out_bytes + kGuarded, kGuard);
  c.channel = 1;
  c.in = {in.data(), in.size()};
  c.out = {out.data(), out_bytes};
  messages.run(c);
  return out;
}

void try_one(Rank& rank, const Draw& d, unsigned seed, Group& messages) {
  Collective c = d.c;
  const auto me = static_cast<std::size_t>(rank.index());
  const BufferElements sizes = elements_of_buffers(c, rank.size(), rank.index());
  const std::size_t in_bytes = sizes.in * size_of(c.dtype), out_bytes = sizes.out * size_of(c.dtype);
  const auto input = test::small_values(c.dtype, sizes.in, seed * 100 + static_cast<unsigned>(me));
  const auto result = expected(messages, c, input, out_bytes);
  const std::size_t place = d.in_place == InPlace::kAtItsPlace
                                ? std::accumulate(c.counts.begin(), c.counts.begin() + rank.index(), std::size_t{0})
                                : 0;
  const bool has_place = d.in_place == InPlace::kSame || out_bytes > 0;  // a gather has it on the root only
  const bool is_in_place = d.in_place != InPlace::kNo && has_place;
  Memory out(rank, d.out_arena[me], std::max(in_bytes, out_bytes) + kGuarded);
  Memory in(rank, d.in_arena[me], in_bytes);
  std::byte* const from = is_in_place ? out.data() + place * size_of(c.dtype) : in.data();
  std::copy(input.begin(), input.end(), from);
  c.in = {from, in_bytes};
  c.out = {out.data(), out_bytes};
  rank.group->run(c);
  EXPECT_EQ(rank.group->algorithm(c), "shm");
  const bool nobody = reduces(c.kind) && std::ranges::all_of(c.contributors, [](auto id) { return id == kAbsent; });
  const std::size_t compared = nobody ? 0 : out_bytes + (is_in_place ? 0 : kGuarded);
  const std::string what =
      std::string(name_of(c.kind)) + ", rank " + std::to_string(me) + ", seed " + std::to_string(seed);
  EXPECT_TRUE(std::equal(out.data(), out.data() + compared, result.begin())) << what;
  EXPECT_TRUE(is_in_place || in.bytes() == input) << what << ": in is written";
}

TEST(ShmMoves, EqualThoseOfMessages) {
  for (const int size : {2, 3, 4, 5}) {
    run_ranks_well({size, Wire::kShm, {}}, [size](Rank& rank) {
      Config by_messages = rank.config;
      by_messages.transport = "tcp";
      std::vector<int> members(static_cast<std::size_t>(size));
      std::iota(members.begin(), members.end(), 0);
      const auto messages = make_transport_group(rank.links, {members, 0}, by_messages, rank.counters);
      std::mt19937 random(23);
      for (unsigned seed = 0; seed < test::effort(400u); ++seed) try_one(rank, draw(random, size), seed, *messages);
    });
  }
}

constexpr std::size_t kFew = 4, kInline = 500,
                      kLarge = 700'000;  // floats; kLarge needs more slices than there are slice buffers

// A collective of the kind, with `count` floats per member.
Collective of_floats(CollectiveKind kind, std::size_t count, std::vector<float>& in, std::vector<float>& out,
                     int size) {
  Collective c;
  c.kind = kind;
  const auto n = static_cast<std::size_t>(size);
  c.counts.assign(counts_of(kind, n), count);
  c.contributors.resize(n);
  std::iota(c.contributors.begin(), c.contributors.end(), 0);
  in.resize(n * count, 1.f);
  out.resize(n * count, 0.f);
  c.in = {reinterpret_cast<std::byte*>(in.data()), in.size() * sizeof(float)};
  c.out = {reinterpret_cast<std::byte*>(out.data()), out.size() * sizeof(float)};
  c.deadline = test::soon();
  return c;
}

// Ranks drift far apart: more sync points than there are arrival flags, more steps than there are slice buffers.
TEST(ShmMoves, APureContributorRunsAheadAndNoDataAreLost) {
  run_ranks_well({3, Wire::kShm, {}}, [](Rank& rank) {
    std::vector<float> in, out;
    const auto pause = [&](int round) {
      const TimePoint late = Clock::now() + std::chrono::milliseconds(rank.index() == 2 && round % 150 == 0 ? 5 : 0);
      while (Clock::now() < late) std::this_thread::yield();
    };
    for (int round = 0; round < 600; ++round) {
      const std::size_t count = round % 100 == 99 ? kLarge : round % 3 == 0 ? kInline : kFew;
      const CollectiveKind kind = round % 7 == 0 ? CollectiveKind::kGather : CollectiveKind::kBroadcast;
      Collective c = of_floats(kind, count, in, out, 3);
      const auto value = static_cast<float>(round);
      std::fill(in.begin(), in.end(), value);
      pause(round);
      rank.group->run(c);
      const bool has_result = kind == CollectiveKind::kBroadcast || rank.index() == 0;
      ASSERT_TRUE(!has_result || (out[0] == value && out[count - 1] == value)) << "round " << round;
    }
  });
}

template <class F>
bool is_mismatch(F f) {
  try {
    f();
    return false;
  } catch (const Mismatch&) {
    return true;
  }
}

TEST(ShmMoves, ADifferenceIsAMismatchOnRanksThatWaitAndTheNextCollectiveWorks) {
  for (const std::size_t count : {kFew, kInline, kLarge}) {
    run_ranks_well({3, Wire::kShm, {}}, [count](Rank& rank) {
      std::vector<float> in, out;
      const auto run_one = [&](CollectiveKind kind, std::size_t length) {
        rank.group->run(of_floats(kind, length, in, out, 3));
      };
      const bool differs = rank.index() == 1;
      run_one(CollectiveKind::kAllGather, count);
      const auto kind = differs ? CollectiveKind::kAllToAll : CollectiveKind::kReduceScatter;
      EXPECT_THROW(run_one(kind, count), Mismatch);
      EXPECT_THROW(run_one(CollectiveKind::kAllGather, differs ? count + 1 : count), Mismatch);
      const bool fails = differs || count == kLarge;  // a rank that agrees with a root that does not wait runs on
      EXPECT_EQ(is_mismatch([&] { run_one(CollectiveKind::kBroadcast, differs ? 2 * count : count); }), fails);
      std::fill(in.begin(), in.end(), 1.f);
      run_one(CollectiveKind::kReduceScatter, count);
      EXPECT_EQ(out[count - 1], 3.f);
    });
  }
}

TEST(ShmMoves, AMismatchNamesTheRanksAndTheirCollectives) {
  const auto errors = run_ranks({2, Wire::kShm, {}}, [](Rank& rank) {
    std::vector<float> in, out;
    const auto kind = rank.index() == 0 ? CollectiveKind::kAllGather : CollectiveKind::kAllToAll;
    rank.group->run(of_floats(kind, kFew, in, out, 2));
    rank.group->run(of_floats(kind, kFew, in, out, 2));
  });
  const std::string text = test::message_of(errors[0]);
  EXPECT_THAT(text, HasSubstr("rank 1 runs other tensors under this plan"));
  EXPECT_THAT(text, HasSubstr("32 bytes, all_to_all"));
  EXPECT_THAT(text, HasSubstr("16 bytes, all_gather"));
}

TEST(ShmMoves, ALateRankIsNamed) {
  const auto errors = run_ranks({3, Wire::kShm, {}}, [](Rank& rank) {
    std::vector<float> in, out;
    rank.group->run(of_floats(CollectiveKind::kBarrier, 0, in, out, 3));
    Collective c = of_floats(CollectiveKind::kBroadcast, kFew, in, out, 3);
    c.root = 2;
    c.deadline = Clock::now() + std::chrono::milliseconds(100);
    if (rank.index() != 2) rank.group->run(c);
    while (rank.index() == 2 && Clock::now() < c.deadline + std::chrono::milliseconds(300)) std::this_thread::yield();
  });
  for (const int rank : {0, 1}) {
    EXPECT_THAT(test::message_of(errors[static_cast<std::size_t>(rank)]),
                HasSubstr("still waiting in shared memory for rank 2 "));
    EXPECT_EQ(test::origin_of(errors[static_cast<std::size_t>(rank)]), 2);
  }
}

TEST(ShmMoves, AnAbortEndsEveryWait) {
  for (const CollectiveKind kind : kKinds) {
    for (const std::size_t count : {kFew, kLarge}) {
      const auto errors = run_ranks({2, Wire::kShm, {}}, [&](Rank& rank) {
        std::vector<float> in, out;
        Collective c = of_floats(kind, kind == CollectiveKind::kBarrier ? 0 : count, in, out, 2);
        c.root = kind == CollectiveKind::kBroadcast || kind == CollectiveKind::kScatter ? 1 : 0;
        rank.group->run(c);
        if (rank.index() == 1) return rank.transport().abort(1, "rank 1 aborts");
        rank.group->run(c);
      });
      EXPECT_THAT(test::message_of(errors[0]), HasSubstr("rank 1 aborts")) << name_of(kind);
    }
  }
}

// At a random moment: at a sync point, between slices, or at the end.
TEST(ShmMoves, AnAbortDuringACollectiveEndsIt) {
  for (const CollectiveKind kind : kKinds) {
    const TimePoint begin = Clock::now();
    const auto errors = run_ranks({3, Wire::kShm, {}}, [&](Rank& rank) {
      std::vector<float> in, out;
      Collective c = of_floats(kind, kind == CollectiveKind::kBarrier ? 0 : kLarge, in, out, 3);
      rank.group->run(c);
      std::jthread aborter([&] {
        while (rank.index() == 1 && Clock::now() < begin + std::chrono::milliseconds(60)) std::this_thread::yield();
        if (rank.index() == 1) rank.transport().abort(1, "rank 1 aborts");
      });
      while (Clock::now() < c.deadline) rank.group->run(c);
    });
    for (const auto& error : errors) EXPECT_THAT(test::message_of(error), HasSubstr("rank 1 aborts")) << name_of(kind);
  }
}

TEST(ShmMoves, AnOverrideForAKindChangesNoOtherKind) {
  Config overrides;
  overrides.algorithms = "broadcast=tree";
  run_ranks_well({2, Wire::kShm, overrides}, [](Rank& rank) {
    std::vector<float> in, out;
    const Collective gather = of_floats(CollectiveKind::kAllGather, kFew, in, out, 2);
    rank.group->run(gather);
    EXPECT_EQ(rank.group->algorithm(gather), "shm");
    const Collective broadcast = of_floats(CollectiveKind::kBroadcast, kFew, in, out, 2);
    rank.group->run(broadcast);
    EXPECT_EQ(rank.group->algorithm(broadcast), "tree");
    EXPECT_EQ(rank.counters.collectives(0, CollectiveKind::kAllGather).count, 1u);
  });
}

}  // namespace
}  // namespace horo::moves_test
