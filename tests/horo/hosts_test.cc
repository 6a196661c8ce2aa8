// Sessions of ranks on two hosts, of which some share memory: their all_reduces are two-level for every set of ranks.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "tests/horo/worlds.h"
#include "tests/ring/run_ranks.h"

namespace horo {
namespace {

using testing::Each;
using testing::HasSubstr;

constexpr int kRanksOfBoth = 4;

void place_on_host(Config& config) {
  config.transport = "shm";
  config.host_id = config.rank < 2 ? "one" : "other";
  config.local_rank = config.rank % 2;
  config.local_size = 2;
}

void on_two_hosts(const std::function<void(Session&)>& body) {
  const std::string addr = test::free_address();
  std::vector<Links> links(kRanksOfBoth);
  std::vector<std::function<void()>> ranks;
  for (int rank = 0; rank < kRanksOfBoth; ++rank) {
    ranks.push_back([&, rank] {
      Config config = test::config_of(rank, kRanksOfBoth, addr);
      place_on_host(config);
      links[static_cast<std::size_t>(rank)] = connect_tcp(config, 0, make_tcp_exchange(config, 0));
    });
  }
  for (const auto& error : test::run_threads(ranks)) EXPECT_EQ(test::message_of(error), "");
  EXPECT_THAT(run_world_over(std::move(links), body, {}, place_on_host), Each(""));
}

void expect_sum(Session& session, const std::string& name, std::uint32_t set, float sum) {
  for (const std::size_t count : {std::size_t{1}, std::size_t{3'000}, std::size_t{200'000}}) {
    std::vector<float> data(count, 1.f);
    TensorSpec spec = float_spec(name + std::to_string(count), static_cast<std::int64_t>(count));
    spec.set = set;
    session.run(spec, data.data(), data.data());
    EXPECT_EQ(data, std::vector<float>(count, sum)) << name << ", rank " << session.topology().rank;
  }
}

TEST(Hosts, AllReducesOfTheWorldAreTwoLevel) {
  on_two_hosts([](Session& session) {
    for (int step = 0; step < 3; ++step) expect_sum(session, "x", 0, kRanksOfBoth);
    EXPECT_THAT(session.counters().json(), HasSubstr("two-level"));
    meet(session);
  });
}

// Sets of three ranks, and the set of the first rank of each host, which share no memory.
TEST(Hosts, SetsOfRanksOfBothHostsReduceCorrectly) {
  on_two_hosts([](Session& session) {
    const int rank = session.topology().rank;
    for (const std::vector<int>& ranks : {std::vector<int>{0, 1, 3}, {0, 2, 3}, {0, 2}}) {
      const auto set = static_cast<std::uint32_t>(outcome_of(session, session.add_set(ranks)).counts.at(0));
      if (std::count(ranks.begin(), ranks.end(), rank) == 0) continue;
      for (int step = 0; step < 3; ++step) expect_sum(session, "x", set, static_cast<float>(ranks.size()));
      const bool is_two_level = session.counters().json().find("two-level") != std::string::npos;
      EXPECT_EQ(is_two_level, rank != 2) << "ranks 0 and 1 are a subtree of {0, 1, 3}, 2 and 3 are none of {0, 2, 3}";
    }
    meet(session);
  });
}

TEST(Hosts, RanksThatJoinedAreLeftOutOnBothHosts) {
  on_two_hosts([](Session& session) {
    const int rank = session.topology().rank;
    for (int left = kRanksOfBoth; left > rank; --left) expect_sum(session, "x", 0, static_cast<float>(left));
    EXPECT_EQ(outcome_of(session, session.join(0)).counts.at(0), 0);
    meet(session);
  });
}

// Runs steps of 32 tensors of 1 KiB until all tensors are in plans on all ranks. Returns the number of plans.
std::size_t plans_of_a_step(Session& session) {
  std::vector<Submission> step;
  std::vector<std::vector<float>> data(32, std::vector<float>(256, 1.f));
  for (std::vector<float>& one : data) {
    TensorSpec spec = float_spec("x" + std::to_string(step.size()), 256);
    spec.stepwise = true;
    step.push_back({session.declare(spec), one.data(), one.data()});
  }
  TensorSpec known = float_spec("known", 1);
  known.op = ReduceOp::kMin;
  for (int i = 0; i < 500; ++i) {
    const auto works = session.submit(step);
    session.wait(works, TimePoint::max());
    session.step_end(0);
    std::set<PlanId> plans;
    for (const BucketPlace& place : session.places(works)) plans.insert(place.plan);
    float all = plans.contains(0) ? 0.f : 1.f;
    session.run(known, &all, &all);
    if (all == 1.f) return plans.size();
  }
  return 0;
}

TEST(Hosts, AStepIsCutIntoSixteenPlansOnTwoHostsOnly) {
  Config config;
  config.least_bucket_bytes = 1 << 10;
  for (const bool is_one : {false, true}) {
    const auto body = [&](Session& session) {
      EXPECT_EQ(plans_of_a_step(session), is_one ? 1U : 16U);
      meet(session);
    };
    const auto place = [&](Config& own) {
      if (!is_one) own.local_size = 1, own.local_rank = 0;
    };
    EXPECT_THAT(run_world(2, body, config, place), Each(""));
  }
}

}  // namespace
}  // namespace horo
