// The bytes that a collective moves, counted in three ways: by formula, by counters, by the kernel.

#include <gtest/gtest.h>

#include <numeric>

#include "tests/ring/run_ranks.h"

namespace horo::test {
namespace {

constexpr std::size_t kBytes = 1 << 20;
constexpr double kTolerance = 0.005;

void all_reduce(Rank& rank, Order order, std::size_t bytes, std::uint64_t plan = 1) {
  std::vector<std::byte> data(bytes);
  Collective c;
  c.order = order;
  c.in = c.out = {data.data(), data.size()};
  c.counts = {data.size() / 4};
  for (int i = 0; i < rank.size(); ++i) c.contributors.push_back(i);
  c.plan = plan;
  c.deadline = soon();
  rank.group->run(c);
}

void barrier(Rank& rank) {
  Collective c;
  c.kind = CollectiveKind::kBarrier;
  c.deadline = soon();
  rank.group->run(c);
}

void expect_formula(int size, Wire wire, Order order) {
  run_ranks_well({size, wire, {}}, [&](Rank& rank) {
    all_reduce(rank, order, kBytes);
    const double expected = 2.0 * (size - 1) / size * kBytes;
    const Traffic traffic = rank.transport().traffic(0);
    EXPECT_NEAR(static_cast<double>(traffic.bytes_sent), expected, expected * kTolerance);
    EXPECT_NEAR(static_cast<double>(traffic.bytes_received), expected, expected * kTolerance);
    const auto counted = rank.counters.collectives(0, CollectiveKind::kAllReduce);
    EXPECT_EQ(counted.traffic.bytes_sent, traffic.bytes_sent);
    EXPECT_EQ(counted.payload_bytes, kBytes);
    EXPECT_EQ(counted.count, 1u);
  });
}

TEST(WireBytes, AllReduceMovesTheBytesOfTheFormula) {
  for (int size = 2; size <= 8; ++size) {
    for (const Order order : {Order::kCanonical, Order::kFast}) expect_formula(size, Wire::kInProcess, order);
  }
  expect_formula(3, Wire::kTcp, Order::kCanonical);
  expect_formula(4, Wire::kTcp, Order::kFast);
}

TEST(WireBytes, TheKernelAgreesWithTheCounters) {
  run_ranks_well({4, Wire::kTcp, {}}, [](Rank& rank) {
    for (std::uint64_t plan = 0; plan < 4; ++plan) all_reduce(rank, Order::kCanonical, kBytes, plan);
    barrier(rank);  // bytes that no rank waits for may still be in the socket
    const auto counted = static_cast<double>(rank.transport().traffic(0).bytes_sent);
    EXPECT_NEAR(static_cast<double>(rank.transport().kernel_bytes_sent()), counted, counted * kTolerance);
  });
}

TEST(WireBytes, AWorldOfOneMovesNoBytes) {
  run_ranks_well({1, Wire::kTcp, {}}, [](Rank& rank) {
    all_reduce(rank, Order::kFast, kBytes);
    EXPECT_EQ(rank.transport().traffic(0).frames_sent, 0u);
    EXPECT_EQ(rank.transport().kernel_bytes_sent(), 0u);
  });
}

TEST(WireBytes, ABarrierTakesLogarithmicallyManyMessages) {
  run_ranks_well({5, Wire::kInProcess, {}}, [](Rank& rank) {
    barrier(rank);
    EXPECT_EQ(rank.transport().traffic(0).frames_sent, 3u);
    EXPECT_EQ(rank.counters.collectives(0, CollectiveKind::kBarrier).count, 1u);
  });
}

TEST(WireBytes, ReduceScatterAndAllGatherMoveHalfEach) {
  run_ranks_well({4, Wire::kInProcess, {}}, [](Rank& rank) {
    std::vector<std::byte> all(kBytes), part(kBytes / 4);
    Collective c;
    c.kind = CollectiveKind::kReduceScatter;
    c.contributors = {0, 1, 2, 3};
    c.counts.assign(4, kBytes / 16);
    c.in = {all.data(), all.size()};
    c.out = {part.data(), part.size()};
    c.deadline = soon();
    rank.group->run(c);
    EXPECT_NEAR(static_cast<double>(rank.transport().traffic(0).bytes_sent), 0.75 * kBytes, kBytes * kTolerance);
    std::swap(c.in, c.out);
    c.kind = CollectiveKind::kAllGather;
    c.plan = 1;
    rank.group->run(c);
    EXPECT_NEAR(static_cast<double>(rank.transport().traffic(0).bytes_sent), 1.5 * kBytes, kBytes * kTolerance);
  });
}

}  // namespace
}  // namespace horo::test
