// Estimates of schedules, fits of link costs, and choices of algorithms. Pure.

#include "ring/schedule/schedule_time.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <set>
#include <string_view>

#include "ring/group/choose.h"
#include "ring/group/link_costs.h"

namespace horo::test {
namespace {

constexpr std::size_t kMiB = 1 << 20;

Shape shape_for(CollectiveKind kind, int size, int ranks_of_host) {
  Shape shape{kind, size, 0, {}, {}};
  for (int i = 0; i < size; ++i) {
    shape.contributors.push_back(i);
    shape.hosts.push_back(i / ranks_of_host);
  }
  return shape;
}

Shape all_reduce_of(int size, int ranks_of_host = 1 << 20) {
  return shape_for(CollectiveKind::kAllReduce, size, ranks_of_host);
}

// All links have this cost; sums cost nothing.
MachineCost bare(const LinkCost& link) {
  MachineCost machine;
  machine.inside = machine.between = link;
  return machine;
}

TEST(ScheduleTime, EveryRoundHasItsLatency) {
  const MachineCost machine = bare({1e-3, 0, 0, 0});
  EXPECT_DOUBLE_EQ(seconds_of(all_reduce_of(2), one_shot_all_reduce, {1024}, machine), 1e-3);
  EXPECT_DOUBLE_EQ(seconds_of(all_reduce_of(8), direct_all_reduce, {1024}, machine), 2e-3);
  EXPECT_DOUBLE_EQ(seconds_of(all_reduce_of(8), ring_all_reduce_schedule, {1024}, machine), 14e-3);
  EXPECT_DOUBLE_EQ(seconds_of(all_reduce_of(1), direct_all_reduce, {1024}, machine), 0);
}

TEST(ScheduleTime, AWireCarriesTheBytesThatTheScheduleSends) {
  const MachineCost machine = bare({0, 0, 0, 1e-9});
  for (const int size : {2, 4, 8}) {
    const double bytes = 840.0 * kMiB, share = (size - 1.0) / size;
    const Load load{840 * kMiB};
    EXPECT_NEAR(seconds_of(all_reduce_of(size), direct_all_reduce, load, machine), 2 * share * bytes * 1e-9, 0.01);
    EXPECT_NEAR(seconds_of(all_reduce_of(size), one_shot_all_reduce, load, machine), (size - 1) * bytes * 1e-9, 0.01);
    const Shape gather = shape_for(CollectiveKind::kAllGather, size, size);
    EXPECT_NEAR(seconds_of(gather, direct_all_gather, load, machine), share * bytes * 1e-9, 0.01);
  }
}

TEST(ScheduleTime, RanksShareTheCoresOfTheirHost) {
  MachineCost machine = bare({0, 1e-6, 0, 0});
  machine.cores = 4;
  const double alone = seconds_of(all_reduce_of(4), one_shot_all_reduce, {64}, machine);
  EXPECT_DOUBLE_EQ(alone, 6e-6);
  machine.cores = 2;
  EXPECT_DOUBLE_EQ(seconds_of(all_reduce_of(4), one_shot_all_reduce, {64}, machine), 2 * alone);
  EXPECT_DOUBLE_EQ(seconds_of(all_reduce_of(4, 2), one_shot_all_reduce, {64}, machine), alone) << "two hosts, two each";
}

TEST(ScheduleTime, RanksShareTheRailsOfTheirHost) {
  MachineCost machine;
  machine.between.wire_byte = 1e-9;
  const Shape shape = all_reduce_of(16, 8);
  const auto with_rails = [&](int rails) {
    machine.rails = rails;
    return seconds_of(shape, hierarchical_all_reduce, {64 * kMiB}, machine);
  };
  EXPECT_NEAR(with_rails(1), 64 * kMiB * 1e-9, 1e-4);  // 2 (H-1)/H S leave each of two hosts
  EXPECT_NEAR(with_rails(4), with_rails(1) / 4, 1e-4);
  EXPECT_NEAR(with_rails(0), with_rails(8), 1e-9);
}

TEST(ScheduleTime, SumsCostTheBytesThatTheyRead) {
  MachineCost machine;
  machine.sum_byte = 1e-9;
  EXPECT_NEAR(seconds_of(all_reduce_of(4), one_shot_all_reduce, {kMiB}, machine), 4 * kMiB * 1e-9, 1e-9);
  const Load halves{kMiB, 2, 4};  // partial sums have twice the bytes
  EXPECT_GT(seconds_of(all_reduce_of(4), tree_all_reduce, halves, machine),
            seconds_of(all_reduce_of(4), tree_all_reduce, {kMiB}, machine));
}

TEST(ScheduleTime, AllSlicesButTheFirstHideTheirLatency) {
  const MachineCost machine = bare({1e-3, 0, 0, 1e-9});
  const Load load{256 * kMiB};
  const double bytes = 256.0 * kMiB * 1e-9;
  EXPECT_NEAR(seconds_of(all_reduce_of(2, 1), direct_all_reduce, load, machine), bytes + 2e-3, 1e-6);
}

TEST(ScheduleTime, SlotsLimitTheSlicesInFlight) {
  const MachineCost machine = bare({1e-3, 0, 0, 0});
  Load load{64 * kMiB};  // 128 slices of two rounds
  for (const std::size_t slots : {1, 4, 16}) {
    load.slots = slots;
    EXPECT_NEAR(seconds_of(all_reduce_of(2), direct_all_reduce, load, machine), 2e-3 * (1 + 127.0 / slots), 1e-9);
  }
}

TEST(ScheduleTime, BytesAndSumsCostMoreBeyondTheCache) {
  MachineCost machine;
  machine.sum_byte = 1e-9;
  machine.cache_bytes = kMiB;
  machine.sum_beyond_cache = 3;
  const auto seconds = [&](std::size_t bytes) {
    return seconds_of(all_reduce_of(4), one_shot_all_reduce, {bytes}, machine);
  };
  EXPECT_NEAR(seconds(kMiB), 4 * kMiB * 1e-9, 1e-9);
  EXPECT_NEAR(seconds(2 * kMiB), 4 * (1 + 3) * kMiB * 1e-9, 1e-9) << "half of the tensor lies beyond the cache";
}

TEST(ScheduleTime, ASampleOfHostsRepresentsThousands) {
  const MachineCost machine = bare({1e-5, 0, 0, 1e-10});
  const Load load{64 * kMiB};
  const Shape many = all_reduce_of(16'384, 8);
  const double bytes = 2.0 * 2047 / 2048 * 64 * kMiB * 1e-10 / 8;  // of eight rails, one for each rank
  const double seconds = seconds_of(many, hierarchical_all_reduce, load, machine);
  EXPECT_GT(seconds, bytes);
  EXPECT_LT(seconds, 64 * kMiB * 1e-10 * 2 + bytes + 1e-3);
}

// ---- Fits.

// A sample of four ranks on two cores.
WorldSample crowded_sample(const LinkCost& link) {
  const double share = 2;
  WorldSample sample;
  sample.ranks_of_host = 4;
  sample.cores = 2;
  sample.sum_byte = 5e-11;
  sample.inside.stops = 4;  // four rounds: two messages at once, one, one, two
  sample.inside.tree = 4 * link.latency + 6 * link.message;
  sample.inside.small = link.latency + 2 * share * link.message;
  sample.inside.several = link.latency + 2 * 3 * share * link.message;
  sample.inside.peers = 3;
  sample.inside.large = sample.inside.small + 2 * share * link.byte * LinkSample::kLargeBytes;
  return sample;
}

TEST(LinkCosts, AFitFindsTheCostsBehindASample) {
  const LinkCost link{3e-6, 4e-6, 1e-10, 0};
  const MachineCost machine = fit(crowded_sample(link));
  EXPECT_NEAR(machine.inside.latency, link.latency, 1e-12);
  EXPECT_NEAR(machine.inside.message, link.message, 1e-12);
  EXPECT_NEAR(machine.inside.byte, link.byte, 1e-15);
  EXPECT_DOUBLE_EQ(machine.sum_byte, 5e-11);
}

TEST(LinkCosts, WhereRanksShareCoresLatencyIsAtMostThatOfAMessage) {
  const LinkCost link{30e-6, 4e-6, 1e-10, 0};
  WorldSample sample = crowded_sample(link);
  const MachineCost machine = fit(sample);
  EXPECT_DOUBLE_EQ(machine.inside.latency, machine.inside.message);
  EXPECT_GT(machine.inside.message, link.message);
  EXPECT_LT(machine.inside.message, link.latency);
  std::swap(sample.inside, sample.between);  // between hosts the latency has no such limit
  EXPECT_GT(fit(sample).between.latency, 5 * fit(sample).between.message);
}

// A message takes 10 ms, independent of the number of concurrent messages, so its cost on a core cannot be measured.
TEST(LinkCosts, OnALineWithLongLatencyMessagesCostLittleWork) {
  WorldSample sample;
  sample.cores = 2;
  sample.sum_byte = 5e-11;
  sample.between = {40e-3, 9.9e-3, 11e-3, 10.1e-3, 4, 3};
  const MachineCost machine = fit(sample);
  EXPECT_GT(machine.between.latency, 9.5e-3);
  EXPECT_LT(machine.between.message, 100e-6);
  EXPECT_GT(machine.between.message, 0);
}

TEST(LinkCosts, ABadSampleGivesFinitePositiveCosts) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN(), kInf = std::numeric_limits<double>::infinity();
  for (const double one : {1e-5, 1e-12, 1e9, kNan, kInf}) {
    for (const double other : {1e-6, 0.0, -1.0, 1e9, kNan, kInf}) {
      WorldSample sample;
      sample.inside = sample.between = {other, one, other, other, 3, 3};
      sample.sum_byte = other;
      sample.cores = other;
      sample.ranks_of_host = 3;
      const MachineCost machine = fit(sample);
      for (const LinkCost& link : {machine.inside, machine.between}) {
        for (const double cost : {link.latency, link.message, link.byte, machine.sum_byte, machine.cores}) {
          EXPECT_TRUE(std::isfinite(cost) && cost > 0) << one << " " << other;
        }
      }
      const double seconds = seconds_of(all_reduce_of(6, 3), direct_all_reduce, {kMiB}, machine);
      EXPECT_TRUE(std::isfinite(seconds) && seconds > 0);
    }
  }
}

// ---- Choices.

std::string chosen(const Shape& shape, std::size_t bytes, const MachineCost& machine, Order order = Order::kCanonical) {
  Collective c;
  c.kind = shape.kind;
  c.order = order;
  const auto size = static_cast<std::size_t>(shape.size);
  const bool has_parts = c.kind == CollectiveKind::kAllGather || c.kind == CollectiveKind::kReduceScatter;
  c.counts.assign(has_parts ? size : 1, bytes / 4 / (has_parts ? size : 1));
  return choose(c, shape, {}, {machine, 256 << 10}).name;
}

TEST(Choice, SmallTensorsTakeOneRoundAndLargeOnesFewBytes) {
  for (const int size : {2, 3, 4, 8}) {
    EXPECT_EQ(chosen(all_reduce_of(size), 8, usual_costs()), "one-shot") << size;
    EXPECT_EQ(chosen(all_reduce_of(size), 64 * kMiB, usual_costs()), "direct") << size;
  }
}

TEST(Choice, TheLargestOneShotSizeFollowsTheCosts) {
  const auto last_one_shot = [](const MachineCost& machine) {
    std::size_t bytes = 8;
    while (bytes < 1024 * kMiB && chosen(all_reduce_of(4), bytes, machine) == "one-shot") bytes *= 2;
    return bytes;
  };
  MachineCost slow = usual_costs(), far = usual_costs();
  slow.inside.byte *= 16;
  far.inside.latency *= 64;
  EXPECT_LT(last_one_shot(slow), last_one_shot(usual_costs()));
  EXPECT_LT(last_one_shot(usual_costs()), last_one_shot(far));
}

// Seconds as measured over loopback on two cores, with one rank per core and with two ranks per core.
TEST(Choice, WhereRanksShareCoresFewMessagesMatterMoreThanFewRounds) {
  WorldSample sample;
  sample.cores = 2;
  sample.sum_byte = 7e-12;
  sample.ranks_of_host = 2;
  sample.inside = {8.0e-6, 5.6e-6, 15.9e-6, 0, 2, 1};
  EXPECT_EQ(chosen(all_reduce_of(2), 8, fit(sample)), "one-shot");
  EXPECT_EQ(chosen(all_reduce_of(2), 64 * 1024, fit(sample)), "one-shot");
  EXPECT_EQ(chosen(all_reduce_of(2), 4 * kMiB, fit(sample)), "direct");
  sample.ranks_of_host = 4;
  sample.inside = {60e-6, 42e-6, 90e-6, 105e-6, 4, 3};
  for (const std::size_t bytes : {8, 4096, 64 << 10, 256 << 10}) {
    EXPECT_EQ(chosen(all_reduce_of(4), bytes, fit(sample)), "tree") << bytes;
  }
  EXPECT_EQ(chosen(all_reduce_of(4), 16 * kMiB, fit(sample)), "direct");
}

TEST(Choice, HostsWithSeveralRanksSumInsideFirst) {
  MachineCost machine = usual_costs();
  machine.rails = 1;
  machine.between.wire_byte = 8e-9;  // 1 Gbit/s
  EXPECT_EQ(chosen(all_reduce_of(8, 4), 16 * kMiB, machine), "hierarchical");
  EXPECT_EQ(chosen(all_reduce_of(8, 4), 16 * kMiB, machine, Order::kFast), "hosts-first");
}

TEST(Choice, ManyRanksGatherSmallTensorsInFewRounds) {
  const MachineCost machine = usual_costs();
  EXPECT_EQ(chosen(shape_for(CollectiveKind::kAllGather, 64, 64), 4096, machine), "log-step");
  EXPECT_EQ(chosen(shape_for(CollectiveKind::kAllGather, 2, 2), 64 * kMiB, machine), "direct");
}

TEST(Choice, OnlyAlgorithmsOfTheRequestedOrderArePriced) {
  for (const int size : {2, 5, 8, 40}) {
    Collective c;
    c.counts = {1000};
    for (const Priced& each : price(c, all_reduce_of(size, 4), 4000, {})) {
      EXPECT_EQ(each.maker->make(all_reduce_of(size, 4), 0).order, Order::kCanonical) << each.maker->name;
      EXPECT_GT(each.seconds, 0);
    }
  }
}

// Halving and doubling is canonical for consecutive ids, but not for these.
TEST(Choice, AnAlgorithmThatIsNotCanonicalForTheContributorsIsNotChosen) {
  Shape shape = all_reduce_of(8);
  shape.contributors = {0, 1, 2, 9, 18, 19, 139387, 139388};
  Collective c;
  std::set<std::string_view> names;
  for (const double byte : {1e-12, 1e-10, 1e-8}) {
    MachineCost machine = usual_costs();
    machine.inside.byte = byte;
    for (std::size_t count = 1; count < kMiB; count *= 2) {
      c.counts = {count};
      c.contributors = shape.contributors;
      const NamedMaker& maker = choose(c, shape, {}, {machine, 256 << 10});
      EXPECT_EQ(maker.make(shape, 0).order, Order::kCanonical) << maker.name;
      names.insert(choose(c, all_reduce_of(8), {}, {machine, 256 << 10}).name);
    }
  }
  EXPECT_TRUE(names.contains("halving-doubling")) << "not chosen for consecutive ids either";
}

TEST(Choice, NeighbouringSizesShareADecision) {
  Collective c;
  for (std::size_t count = 1; count < 100'000; count += 1 + count / 7) {
    c.counts = {count};
    const std::size_t bytes = priced_bytes(c, 4);
    EXPECT_GE(bytes, count * 4);
    EXPECT_LE(bytes, std::max<std::size_t>(8, count * 4 + count));
    c.counts = {bytes / 4};
    EXPECT_EQ(priced_bytes(c, 4), bytes / 4 * 4);
  }
}

}  // namespace
}  // namespace horo::test
