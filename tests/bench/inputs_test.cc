#include "bench/peers/inputs.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <numeric>
#include <stdexcept>

namespace horo::tools {
namespace {

constexpr int kRanks = 3;
constexpr std::size_t kAskedBytes = 100'000;

struct Place {
  contest_task task{};
  std::vector<float> in, out;
};

// What all ranks have after the operation, by rank; a collective that is done right leaves nothing wrong.
class Contest {
 public:
  explicit Contest(const char* collective) {
    for (int rank = 0; rank < kRanks; ++rank) {
      Place& place = places.emplace_back();
      place.task.collective = collective;
      place.task.dtype = "float32";
      place.task.rank = rank;
      place.task.size = kRanks;
      data.emplace_back(place.task, kAskedBytes);
      place.in.resize(place.task.in_bytes / sizeof(float));
      place.out.resize(place.task.out_bytes / sizeof(float));
    }
  }
  void begin(std::size_t operation) {
    for (std::size_t rank = 0; rank < kRanks; ++rank) {
      data[rank].begin_turn(1);
      data[rank].rewrite(places[rank].in.data(), operation);
    }
  }
  std::size_t wrong(std::size_t operation) {
    std::size_t wrong = 0;
    for (std::size_t rank = 0; rank < kRanks; ++rank) {
      wrong += data[rank].count_wrong(places[rank].out.data(), operation);
    }
    return wrong;
  }
  // out of `to` at element `at` becomes in of `from` at element `begin`, `count` of them.
  void copy(std::size_t from, std::size_t begin, std::size_t to, std::size_t at) {
    std::memcpy(places[to].out.data() + at, places[from].in.data() + begin, part() * sizeof(float));
  }
  void sum(std::size_t begin, std::size_t to) {
    std::fill(places[to].out.begin(), places[to].out.end(), 0.F);
    for (const Place& place : places) {
      for (std::size_t i = 0; i < places[to].out.size(); ++i) places[to].out[i] += place.in[begin + i];
    }
  }
  std::size_t part() const { return places[0].task.count / kRanks; }

  std::vector<Place> places;
  std::vector<ContestData> data;
};

TEST(BenchInputs, ARightSumHasNothingWrongAndAnOldOneHas) {
  Contest contest("all_reduce");
  contest.begin(0);
  for (std::size_t rank = 0; rank < kRanks; ++rank) contest.sum(0, rank);
  EXPECT_EQ(contest.wrong(0), 0U);
  EXPECT_GT(contest.wrong(1), 0U);
  contest.places[1].out.back() += 1;
  EXPECT_EQ(contest.wrong(0), 1U);
}

TEST(BenchInputs, EveryPartOfAReduceScatterIsChecked) {
  Contest contest("reduce_scatter");
  contest.begin(1);
  for (std::size_t rank = 0; rank < kRanks; ++rank) contest.sum(rank * contest.part(), rank);
  EXPECT_EQ(contest.wrong(1), 0U);
  contest.sum(0, 1);
  EXPECT_GT(contest.wrong(1), 0U) << "another rank's part";
}

TEST(BenchInputs, EveryPartOfAnAllToAllIsChecked) {
  Contest contest("all_to_all");
  contest.begin(0);
  const std::size_t part = contest.part();
  for (std::size_t from = 0; from < kRanks; ++from) {
    for (std::size_t to = 0; to < kRanks; ++to) contest.copy(from, to * part, to, from * part);
  }
  EXPECT_EQ(contest.wrong(0), 0U);
  contest.copy(0, 0, 2, 0);
  EXPECT_GT(contest.wrong(0), 0U) << "a part for somebody else";
}

TEST(BenchInputs, AGatherIsCheckedAtItsRoot) {
  Contest contest("gather");
  contest.begin(0);
  EXPECT_GT(contest.wrong(0), 0U);
  for (std::size_t from = 0; from < kRanks; ++from) contest.copy(from, 0, 0, from * contest.part());
  EXPECT_EQ(contest.wrong(0), 0U);
}

TEST(BenchInputs, ThereIsAtLeastAnElementForEachRank) {
  contest_task task{};
  task.collective = "all_gather";
  task.dtype = "float64";
  task.size = kRanks;
  const ContestData data(task, 1);
  EXPECT_EQ(task.in_bytes, 8U);
  EXPECT_EQ(task.out_bytes, 24U);
}

TEST(BenchInputs, WhatIsNoCollectiveIsRefused) {
  contest_task task{};
  task.collective = "all_recude";
  task.dtype = "float32";
  task.size = kRanks;
  EXPECT_THROW(ContestData(task, 8), std::invalid_argument);
}

}  // namespace
}  // namespace horo::tools
