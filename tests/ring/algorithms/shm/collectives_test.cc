// All_reduces in shared memory: the same bits as over messages for all kinds of memory and lengths, and the events that
// end a wait.
#include "ring/algorithms/shm/collectives.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <random>
#include <thread>

#include "horo/base/error.h"
#include "tests/effort.h"
#include "tests/ring/reduce/small_values.h"
#include "tests/ring/run_ranks.h"

namespace horo {
namespace {

using test::Rank;
using test::run_ranks;
using test::run_ranks_well;
using test::Wire;
using testing::HasSubstr;

// Where a rank has its tensor. kMixed: a bucket on the even ranks, own memory on the odd ones. kPieces: pieces on the
// odd ranks, a bucket on the even ones.
enum class Where { kBucket, kOwnInPlace, kOwn, kMixed, kPieces };

struct Draw {
  DType dtype = DType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  std::size_t count = 0;
  Where where = Where::kOwn;
  std::vector<std::int64_t> contributors;
  double factor = 1.0;
};

constexpr DType kTypes[] = {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16, DType::kInt32,
                            DType::kUint8,   DType::kInt64,   DType::kBool,    DType::kComplex64};
constexpr std::size_t kCounts[] = {0, 1, 3, 511, 512, 1'025, 5'000, 32'768, 40'001, 300'000};

template <class Random>
Draw draw(Random& random, int size) {
  Draw d;
  const auto pick = [&](const auto& from) { return from[random() % std::size(from)]; };
  d.dtype = pick(kTypes);
  d.op = pick(std::array{ReduceOp::kSum, ReduceOp::kAverage, ReduceOp::kMax, ReduceOp::kProduct});
  if (d.dtype == DType::kComplex64 && d.op == ReduceOp::kMax) d.op = ReduceOp::kSum;
  if (d.dtype == DType::kBool && d.op == ReduceOp::kAverage) d.op = ReduceOp::kSum;
  d.count = pick(kCounts);
  d.where = pick(std::array{Where::kBucket, Where::kOwnInPlace, Where::kOwn, Where::kMixed, Where::kPieces});
  for (int rank = 0; rank < size; ++rank) d.contributors.push_back(random() % 8 == 0 ? kAbsent : 3 * rank);
  const bool scales = d.op != ReduceOp::kMax && d.op != ReduceOp::kProduct && d.dtype != DType::kBool;
  d.factor = scales && random() % 2 == 0 ? 0.75 : 1.0;
  return d;
}

std::vector<std::byte> values(const Draw& d, int rank, unsigned seed) {
  return test::small_values(d.dtype, d.count, seed * 100 + static_cast<unsigned>(rank));
}

Collective collective_of(const Draw& d, Buffer in, Buffer out) {
  Collective c;
  c.op = d.op;
  c.dtype = d.dtype;
  c.in = in;
  c.out = out;
  c.counts = {d.count};
  c.contributors = d.contributors;
  c.prescale = c.postscale = d.factor;
  c.divisor = d.op == ReduceOp::kAverage ? static_cast<double>(d.contributors.size()) : 1.0;
  c.deadline = test::soon();
  return c;
}

Buffer whole(std::byte* data, std::size_t bytes) {
  return {data, bytes};
}

bool same(const std::byte* a, const std::vector<std::byte>& b) {
  return b.empty() || std::memcmp(a, b.data(), b.size()) == 0;
}

// The result over messages.
std::vector<std::byte> expected(Group& messages, const Draw& d, std::vector<std::byte> mine) {
  Collective c = collective_of(d, whole(mine.data(), mine.size()), whole(mine.data(), mine.size()));
  c.channel = 1;
  messages.run(c);
  return mine;
}

// A tensor in pieces of a random number of elements, which may be zero. About half of the pieces are in place.
class Scattered {
 public:
  Scattered(const std::vector<std::byte>& tensor, std::size_t each, unsigned seed) {
    std::mt19937 random(seed);
    for (std::size_t begin = 0; begin < tensor.size() || pieces_.empty();) {
      const std::size_t bytes = std::min(tensor.size() - begin, random() % 4 == 0 ? 0 : random() % 30'000 * each);
      const auto from = tensor.begin() + static_cast<std::ptrdiff_t>(begin);
      ins_.emplace_back(from, from + static_cast<std::ptrdiff_t>(bytes));
      outs_.emplace_back(bytes);
      pieces_.push_back({ins_.back().data(), (random() % 2 == 0 ? ins_ : outs_).back().data(), bytes});
      begin += bytes;
    }
  }
  const std::vector<Piece>& pieces() const { return pieces_; }
  std::vector<std::byte> result() const {
    std::vector<std::byte> all;
    for (const Piece& piece : pieces_) all.insert(all.end(), piece.out, piece.out + piece.bytes);
    return all;
  }

 private:
  std::deque<std::vector<std::byte>> ins_, outs_;
  std::vector<Piece> pieces_;
};

// Returns false if the tensor is too short for pieces.
bool try_pieces(Rank& rank, const Draw& d, const std::vector<std::byte>& mine, const std::vector<std::byte>& result) {
  Collective c = collective_of(d, {}, {});
  if (!rank.group->takes_pieces(c)) return false;
  const Scattered scattered(mine, size_of(d.dtype), static_cast<unsigned>(d.count));
  c.pieces = scattered.pieces();
  rank.group->run(c);
  const bool nobody = std::all_of(d.contributors.begin(), d.contributors.end(), [](auto id) { return id == kAbsent; });
  EXPECT_TRUE(nobody || scattered.result() == result) << "rank " << rank.index() << " of " << d.count;
  return true;
}

void try_one(Rank& rank, const Draw& d, unsigned seed, Group& messages) {
  const auto mine = values(d, rank.index(), seed);
  const auto result = expected(messages, d, mine);
  const bool is_odd = rank.index() % 2 == 1;
  if (d.where == Where::kPieces && is_odd && try_pieces(rank, d, mine, result)) return;
  const bool in_bucket = d.where == Where::kBucket || (d.where >= Where::kMixed && !is_odd);
  std::vector<std::byte> memory = mine, other(mine.size());
  Allocation bucket = in_bucket ? rank.group->allocate(mine.size()) : Allocation();
  if (in_bucket && !mine.empty()) std::memcpy(bucket.data.get(), mine.data(), mine.size());
  const Buffer in = whole(in_bucket ? bucket.data.get() : memory.data(), mine.size());
  const Buffer out = d.where == Where::kOwn ? whole(other.data(), other.size()) : in;
  const Collective c = collective_of(d, in, out);
  rank.group->run(c);
  EXPECT_EQ(rank.group->algorithm(c), "shm");
  const bool nobody = std::all_of(d.contributors.begin(), d.contributors.end(), [](auto id) { return id == kAbsent; });
  EXPECT_TRUE(nobody || same(out.data, result)) << "rank " << rank.index() << ", seed " << seed;
  EXPECT_TRUE(d.where != Where::kOwn || same(memory.data(), mine)) << "in is not written";
  // The bucket is freed here, so no rank may read or write it any more.
}

TEST(ShmCollectives, PiecesThatDoNotMatchTheTensorAreRefused) {
  run_ranks_well({2, Wire::kShm, {}}, [](Rank& rank) {
    std::vector<float> values(5'000);
    auto* const data = reinterpret_cast<std::byte*>(values.data());
    Draw d;
    d.count = values.size();
    d.contributors = {0, 1};
    Collective c = collective_of(d, whole(data, 20'000), whole(data, 20'000));
    rank.group->run(c);
    const auto thrown_by = [&](const std::vector<Piece>& pieces) {
      c.pieces = pieces;
      try {
        rank.group->run(c);
      } catch (const std::invalid_argument& error) {
        return std::string(error.what());
      }
      return std::string();
    };
    EXPECT_THAT(thrown_by({{data, data, 19'996}}), HasSubstr("pieces of 19996 bytes, expected 20000"));
    EXPECT_THAT(thrown_by({{data, data, 10'001}, {data + 10'001, data + 10'001, 9'999}}), HasSubstr("whole elements"));
    EXPECT_THAT(thrown_by({{data, nullptr, 20'000}}), HasSubstr("has no address"));
    c.counts = {100};
    EXPECT_THAT(thrown_by({{data, data, 400}}), HasSubstr("pieces where none are taken"));
  });
}

class ShmBits : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(PastCaches, ShmBits, testing::Values("auto", "on", "off"));

TEST_P(ShmBits, EqualThoseOfMessages) {
  for (const int size : {2, 3, 4, 5}) {
    Config config;
    config.shm_past_caches = GetParam();
    run_ranks_well({size, Wire::kShm, config}, [size](Rank& rank) {
      Config by_messages = rank.config;
      by_messages.transport = "tcp";
      std::vector<int> members(static_cast<std::size_t>(size));
      for (int i = 0; i < size; ++i) members[static_cast<std::size_t>(i)] = i;
      const auto messages = make_transport_group(rank.links, {members, 0}, by_messages, rank.counters);
      std::mt19937 random(17);
      for (unsigned seed = 0; seed < test::effort(150u); ++seed) try_one(rank, draw(random, size), seed, *messages);
    });
  }
}

// Each part is summed exactly once, whichever rank is late.
TEST(ShmCollectives, PartsOfLargeBucketsAreClaimedByAnyRank) {
  for (const int size : {2, 3, 4}) {
    const std::size_t least = static_cast<std::size_t>(size << 20) / sizeof(float);
    run_ranks_well({size, Wire::kShm, {}}, [size, least](Rank& rank) {
      unsigned seed = 0;
      for (const std::size_t count : {least - 1, least, std::size_t{1'000}, least + 1, 2 * least + 77'777}) {
        const Allocation bucket = rank.group->allocate(count * sizeof(float));
        auto* const data = reinterpret_cast<float*>(bucket.data.get());
        const auto value = [](std::size_t i, int of, unsigned round) {
          return static_cast<float>(i % 1'013 + of + round);
        };
        for (std::size_t i = 0; i < count; ++i) data[i] = value(i, rank.index(), seed);
        const TimePoint late = Clock::now() + std::chrono::milliseconds(static_cast<int>(seed) % size == rank.index());
        while (Clock::now() < late) std::this_thread::yield();
        Draw d;
        d.count = count;
        for (int other = 0; other < size; ++other) d.contributors.push_back(other);
        const Buffer buffer = whole(bucket.data.get(), count * sizeof(float));
        rank.group->run(collective_of(d, buffer, buffer));
        std::size_t wrong = 0;
        for (std::size_t i = 0; i < count; ++i) {
          float sum = 0;
          for (int other = 0; other < size; ++other) sum += value(i, other, seed);
          wrong += data[i] != sum ? 1 : 0;
        }
        EXPECT_EQ(wrong, 0u) << "rank " << rank.index() << " of " << size << ", " << count << " elements";
        ++seed;
      }
    });
  }
}

Collective of_words(std::vector<float>& data, int size) {
  Draw d;
  d.count = data.size();
  for (int rank = 0; rank < size; ++rank) d.contributors.push_back(rank);
  const Buffer buffer = whole(reinterpret_cast<std::byte*>(data.data()), data.size() * sizeof(float));
  return collective_of(d, buffer, buffer);
}

TEST(ShmCollectives, ADifferenceIsAMismatchOnAllRanksAndTheNextCollectiveWorks) {
  for (const std::size_t count : {std::size_t{4}, std::size_t{100'000}}) {
    run_ranks_well({3, Wire::kShm, {}}, [count](Rank& rank) {
      std::vector<float> data(count, 1.f);
      rank.group->run(of_words(data, 3));
      Collective other = of_words(data, 3);
      other.key_hash = rank.index() == 1 ? 7 : 6;
      EXPECT_THROW(rank.group->run(other), Mismatch);
      std::vector<float> more(rank.index() == 2 ? count : 2 * count + 5'000, 1.f);
      EXPECT_THROW(rank.group->run(of_words(more, 3)), Mismatch);
      rank.group->run(of_words(data, 3));
      EXPECT_EQ(data, std::vector<float>(count, 9.f));
    });
  }
}

TEST(ShmCollectives, ALateRankIsNamed) {
  const auto errors = run_ranks({3, Wire::kShm, {}}, [](Rank& rank) {
    std::vector<float> data(50'000, 1.f);
    rank.group->run(of_words(data, 3));
    Collective c = of_words(data, 3);
    c.deadline = Clock::now() + std::chrono::milliseconds(100);
    if (rank.index() != 2) rank.group->run(c);
    while (rank.index() == 2 && Clock::now() < c.deadline + std::chrono::milliseconds(300)) std::this_thread::yield();
  });
  EXPECT_THAT(test::message_of(errors[0]), HasSubstr("still waiting in shared memory for rank 2"));
  EXPECT_EQ(test::origin_of(errors[0]), 2);
}

TEST(ShmCollectives, AnAbortEndsAWaitAtOnce) {
  const TimePoint begin = Clock::now();
  const auto errors = run_ranks({2, Wire::kShm, {}}, [](Rank& rank) {
    std::vector<float> data(50'000, 1.f);
    rank.group->run(of_words(data, 2));
    if (rank.index() == 1) return rank.transport().abort(1, "rank 1 aborts");
    rank.group->run(of_words(data, 2));
  });
  EXPECT_THAT(test::message_of(errors[0]), HasSubstr("rank 1 aborts"));
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(10));
}

TEST(ShmCollectives, ARankThatLeftFailsOnlyWaitsForIt) {
  const auto errors = run_ranks({2, Wire::kShm, {}}, [](Rank& rank) {
    std::vector<float> data(50'000, 1.f);
    for (int i = 0; i < 20; ++i) rank.group->run(of_words(data, 2));
    if (rank.index() == 0) rank.group->run(of_words(data, 2));
  });
  EXPECT_THAT(test::message_of(errors[0]), HasSubstr("rank 1 left while it was waited for"));
  EXPECT_EQ(test::message_of(errors[1]), "");
}

// One rank is late by so much that the others sleep.
TEST(ShmCollectives, ASleepingRankIsWoken) {
  run_ranks_well({3, Wire::kShm, {}}, [](Rank& rank) {
    for (int round = 0; round < 5; ++round) {
      std::vector<float> data(20'000, 1.f);
      const TimePoint late = Clock::now() + std::chrono::milliseconds(round % 3 == rank.index() ? 20 : 0);
      while (Clock::now() < late) std::this_thread::yield();
      rank.group->run(of_words(data, 3));
      EXPECT_EQ(data.back(), 3.f);
    }
  });
}

TEST(ShmCollectives, AreNotUsedWithAnOverrideOrOnDifferentHosts) {
  Config overrides;
  overrides.algorithms = "all_reduce=ring";
  run_ranks_well({2, Wire::kShm, overrides}, [](Rank& rank) {
    std::vector<float> data(5'000, 1.f);
    rank.group->run(of_words(data, 2));
    EXPECT_NE(rank.group->algorithm(of_words(data, 2)), "shm");
    const auto far = make_transport_group(rank.links, {{0, 1}, 0, {0, 1}}, rank.config, rank.counters);
    Config plain = rank.config;
    plain.algorithms = "";
    const auto apart = make_transport_group(rank.links, {{0, 1}, 0, {0, 1}}, plain, rank.counters);
    apart->run(of_words(data, 2));
    EXPECT_NE(apart->algorithm(of_words(data, 2)), "shm");
  });
}

}  // namespace
}  // namespace horo
