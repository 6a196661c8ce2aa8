// Every algorithm, run from its schedule over each kind of connection, for random sizes, members, hosts and segments.
// Canonical sums have the bits of one call of the kernel, others the exact value. The traffic is what the schedule
// says.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <numeric>
#include <random>

#include "horo/base/shard.h"
#include "ring/group/choose.h"
#include "ring/reduce/reduce.h"
#include "ring/schedule/schedule_check.h"
#include "ring/schedule/schedule_json.h"
#include "ring/schedule/schedule_parts.h"
#include "tests/effort.h"
#include "tests/ring/run_ranks.h"

namespace horo::test {
namespace {

using Bytes = std::vector<std::byte>;
using Kind = CollectiveKind;

constexpr std::size_t kElement = 4;  // float32

// One collective, the same on all ranks, drawn from a seed.
struct Draw {
  Draw(const NamedMaker& maker, int size, std::uint64_t seed) : maker(maker), size(size), random(seed) {
    c.kind = maker.kind;
    c.op = random() % 2 == 0 ? ReduceOp::kSum : ReduceOp::kAverage;
    c.divisor = size;
    c.root = static_cast<int>(random() % static_cast<std::uint64_t>(size));
    c.plan = seed;
    c.deadline = soon();
    for (int i = 0; i < size; ++i) {
      c.contributors.push_back(reduces(c.kind) && random() % 5 == 0 ? kAbsent : 2 * i + static_cast<int>(random() % 2));
    }
    c.counts.resize(counts_for());
    const std::size_t most = random() % 3 == 0 ? 40 : 3'000;
    for (std::size_t& count : c.counts) count = random() % 4 == 0 ? 0 : random() % most;
    for (int i = 0, host = 0; i < size; ++i) hosts.push_back(random() % 2 == 0 ? host : ++host);
    in_place = random() % 2 == 0;
    c.order = maker.make(shape_of(c, size, hosts), 0).order;
  }

  std::size_t counts_for() const {
    const auto n = static_cast<std::size_t>(size);
    if (c.kind == Kind::kAllToAll) return n * n;
    return c.kind == Kind::kAllReduce || c.kind == Kind::kReduce || c.kind == Kind::kBroadcast ? 1 : n;
  }
  std::size_t total() const { return std::accumulate(c.counts.begin(), c.counts.end(), std::size_t{0}); }

  const NamedMaker& maker;
  const int size;
  std::mt19937_64 random;
  Collective c;
  std::vector<int> hosts;
  bool in_place = false;
};

// Canonical sums get floats whose sum depends on the order; others get small whole numbers, whose sum does not.
Bytes values(const Draw& draw, std::size_t count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  Bytes bytes(count * kElement);
  for (std::size_t i = 0; i < count; ++i) {
    const auto whole = static_cast<float>(random() % 64);
    const float value = draw.c.order == Order::kFast ? whole : std::ldexp(whole / 37, static_cast<int>(random() % 30));
    std::memcpy(bytes.data() + i * kElement, &value, kElement);
  }
  return bytes;
}

Bytes part(const Bytes& bytes, std::size_t begin, std::size_t count) {
  const auto at = bytes.begin() + static_cast<long>(begin * kElement);
  return {at, at + static_cast<long>(count * kElement)};
}

void append(Bytes& to, const Bytes& bytes) {
  to.insert(to.end(), bytes.begin(), bytes.end());
}

// The inputs and outputs of each member.
class Expected {
 public:
  explicit Expected(const Draw& draw) : draw_(draw), n_(static_cast<std::size_t>(draw.size)) {
    for (std::size_t i = 0; i < n_; ++i) in.push_back(values(draw, input_length(i), draw.c.plan * 100 + i));
    for (std::size_t i = 0; i < n_; ++i) out.push_back(output(i));
  }
  std::vector<Bytes> in, out;

 private:
  const Collective& c() const { return draw_.c; }
  bool is_root(std::size_t i) const { return static_cast<int>(i) == c().root; }
  std::size_t begin(std::size_t member) const {
    return std::accumulate(c().counts.begin(), c().counts.begin() + static_cast<long>(member), std::size_t{0});
  }

  std::size_t input_length(std::size_t i) const {
    switch (c().kind) {
      case Kind::kAllGather:
      case Kind::kGather:
        return c().counts[i];
      case Kind::kBroadcast:
      case Kind::kScatter:
        return is_root(i) ? draw_.total() : 0;
      case Kind::kAllToAll:
        return std::accumulate(c().counts.begin() + static_cast<long>(i * n_),
                               c().counts.begin() + static_cast<long>((i + 1) * n_), std::size_t{0});
      default:
        return draw_.total();
    }
  }

  Bytes sum() const {
    std::vector<TreeInput> inputs;
    std::vector<std::int64_t> ids;
    for (std::size_t i = 0; i < n_; ++i) {
      if (c().contributors[i] == kAbsent) continue;
      ids.push_back(c().contributors[i]);
      inputs.push_back({in[i].data()});
    }
    Bytes sum(draw_.total() * kElement);
    reduce_tree({c().dtype, c().op, {1, 1, c().divisor}}, canonical_tree(ids), inputs, sum.data(), draw_.total());
    return sum;
  }

  Bytes output(std::size_t i) const {
    const auto root = static_cast<std::size_t>(c().root);
    Bytes all;
    for (const Bytes& one : in) append(all, one);
    switch (c().kind) {
      case Kind::kAllReduce:
        return sum();
      case Kind::kReduce:
        return is_root(i) ? sum() : Bytes();
      case Kind::kReduceScatter:
        return part(sum(), begin(i), c().counts[i]);
      case Kind::kAllGather:
        return all;
      case Kind::kGather:
        return is_root(i) ? all : Bytes();
      case Kind::kScatter:
        return part(in[root], begin(i), c().counts[i]);
      case Kind::kAllToAll:
        return received(i);
      default:
        return in[root];
    }
  }

  Bytes received(std::size_t i) const {
    Bytes bytes;
    for (std::size_t from = 0; from < n_; ++from) {
      append(bytes, part(in[from], begin(from * n_ + i) - begin(from * n_), c().counts[from * n_ + i]));
    }
    return bytes;
  }

  const Draw& draw_;
  const std::size_t n_;
};

bool nobody_contributes(const Collective& c) {
  return reduces(c.kind) && std::all_of(c.contributors.begin(), c.contributors.end(), [](auto id) { return id < 0; });
}

void run_draw(Rank& rank, const Draw& draw) {
  std::vector<int> everybody(static_cast<std::size_t>(draw.size));
  std::iota(everybody.begin(), everybody.end(), 0);
  rank.config.algorithms = std::string(name_of(draw.c.kind)) + "=" + draw.maker.name;
  const auto group = make_transport_group(rank.links, {everybody, 0, draw.hosts}, rank.config, rank.counters);
  Expected expected(draw);
  const auto me = static_cast<std::size_t>(rank.index());
  Bytes in = expected.in[me], out(expected.out[me].size());
  Collective c = draw.c;
  ASSERT_EQ(group->algorithm(c), draw.maker.name);
  c.in = {in.data(), in.size()};
  c.out = {out.data(), out.size()};
  const bool same_place = c.counts.size() == 1 && in.size() == out.size();
  if (draw.in_place && same_place) c.out = c.in;
  group->run(c);
  if (nobody_contributes(c)) return;
  ASSERT_EQ(Bytes(c.out.data, c.out.data + c.out.bytes), expected.out[me])
      << name_of(c.kind) << " " << draw.maker.name << " of " << draw.size << ", seed " << draw.c.plan;
  if (c.out.data == c.in.data) return;
  ASSERT_EQ(in, expected.in[me]) << "in is never written";
}

void run_all(int size, Wire wire, std::size_t segment_bytes, std::uint64_t first_seed) {
  WorldOptions options{size, wire, {}};
  options.config.segment_bytes = segment_bytes;
  run_ranks_well(options, [&](Rank& rank) {
    std::uint64_t seed = first_seed;
    for (const NamedMaker& maker : all_schedule_makers()) {
      for (int i = 0; i < 4; ++i) run_draw(rank, Draw(maker, size, seed++));
    }
  });
}

TEST(Algorithms, AllGiveTheBitsOfTheOracleOverMemory) {
  for (const int size : {1, 2, 3, 4, 5, 6, 7, 8, 12}) {
    if (size < 6 || !kSanitized) run_all(size, Wire::kInProcess, 500, 1'000);
  }
}

TEST(Algorithms, AllGiveTheBitsOfTheOracleOverTcp) {
  for (const int size : {2, 3, 6}) run_all(size, Wire::kTcp, 2'000, 2'000);
}

TEST(Algorithms, AllGiveTheBitsOfTheOracleOverSharedMemory) {
  for (const int size : {2, 3, 6}) run_all(size, Wire::kShm, 2'000, 2'000);
}

TEST(Algorithms, SegmentSizesChangeNoBit) {
  for (const std::size_t segment : {64ul, 333ul, 256ul << 10}) run_all(5, Wire::kInProcess, segment, 3'000);
}

std::vector<std::size_t> chunk_bytes(const Schedule& schedule, const Collective& c) {
  std::vector<std::size_t> bytes;
  for (int chunk = 0; chunk < schedule.chunks; ++chunk) {
    const bool even = c.counts.size() == 1;
    bytes.push_back(kElement * (even ? shard_of(c.counts[0], schedule.chunks, chunk).size
                                     : c.counts[static_cast<std::size_t>(chunk)]));
  }
  return bytes;
}

TEST(Algorithms, TheWireCarriesWhatTheScheduleSays) {
  constexpr int kSize = 6;
  run_ranks_well({kSize, Wire::kInProcess, {}}, [](Rank& rank) {
    std::uint64_t seed = 1;
    for (const NamedMaker& maker : all_schedule_makers()) {
      Draw draw(maker, kSize, ++seed);
      if (kSanitized && seed % 3 != 0) continue;
      std::fill(draw.c.counts.begin(), draw.c.counts.end(), 150'000 / draw.c.counts.size());
      const Shape shape = shape_of(draw.c, kSize, draw.hosts);
      std::vector<Schedule> schedules;
      for (int member = 0; member < kSize; ++member) schedules.push_back(maker.make(shape, member));
      const auto bytes = chunk_bytes(schedules[0], draw.c);
      const Cost cost = cost_of(shape, schedules, {bytes, bytes});
      const std::uint64_t before = rank.transport().traffic(0).bytes_sent;
      run_draw(rank, draw);
      const auto sent = static_cast<double>(rank.transport().traffic(0).bytes_sent - before);
      const auto said = static_cast<double>(cost.sent[static_cast<std::size_t>(rank.index())]);
      EXPECT_NEAR(sent, said, 0.005 * said) << name_of(maker.kind) << " " << maker.name;
    }
  });
}

TEST(Overrides, AreParsedAndRefusedByName) {
  EXPECT_EQ(read_overrides("all_reduce=tree,broadcast=scatter").names.size(), 2u);
  EXPECT_TRUE(read_overrides("").names.empty());
  for (const char* wrong : {"all_reduce", "all_reduce=best", "all_reduce=mpi", "allreduce=tree", "barrier=tree",
                            "all_reduce=@/no/such/file"}) {
    EXPECT_THROW(read_overrides(wrong), std::invalid_argument) << wrong;
  }
}

TEST(Overrides, ASchedulesFileIsProvenAndRun) {
  const std::string path = testing::TempDir() + "/horo_schedules_test.json";
  GivenSchedules given;
  given.shape.size = 3;
  for (int member = 0; member < 3; ++member) given.schedules.push_back(tree_all_reduce(given.shape, member));
  for (Schedule& schedule : given.schedules) schedule.name = "mine";
  std::ofstream(path) << to_json(given);
  WorldOptions options{3, Wire::kInProcess, {}};
  options.config.algorithms = "all_reduce=@" + path;
  run_ranks_well(options, [](Rank& rank) {
    Collective c;
    c.counts = {5'000};
    c.contributors = {0, 1, 2};
    c.deadline = soon();
    std::vector<float> data(5'000, static_cast<float>(1 + rank.index()));
    c.in = c.out = {reinterpret_cast<std::byte*>(data.data()), data.size() * sizeof(float)};
    EXPECT_EQ(rank.group->algorithm(c), "mine");
    rank.group->run(c);
    EXPECT_EQ(data, std::vector<float>(5'000, 6.f));
    c.contributors = {0, kAbsent, 2};
    EXPECT_NE(rank.group->algorithm(c), "mine") << "the file was proven for members that all contribute";
  });
  EXPECT_THROW(read_overrides("broadcast=@" + path), std::invalid_argument);
  std::remove(path.c_str());
}

TEST(Overrides, AFastAlgorithmIsNotTakenForACanonicalSum) {
  Collective c;
  c.counts = {100'000};
  c.contributors = {0, 1, 2};
  const Shape shape = shape_of(c, 3, {});
  EXPECT_STREQ(choose(c, shape, read_overrides("all_reduce=ring"), {}).name, "direct");
  EXPECT_STREQ(choose(c, shape, read_overrides("all_reduce=tree"), {}).name, "tree");
  c.order = Order::kFast;
  EXPECT_STREQ(choose(c, shape, read_overrides("all_reduce=halving-doubling"), {}).name, "halving-doubling");
}

}  // namespace
}  // namespace horo::test
