// Memory runs out in the middle of a job: each allocation of horo's threads in turn fails, once.

#include <gtest/gtest.h>

#include <atomic>

#include "tests/hall/failing_new.h"
#include "tests/hall/worlds.h"
#include "tests/ring/run_ranks.h"

namespace horo {
namespace {

void reduce_some(Session& session) {
  for (int step = 0; step < 4; ++step) {
    std::vector<float> x(2000, 1.0f), y(10, 2.0f);
    TensorSpec first = float_spec("x", 2000);
    TensorSpec second = float_spec("y", 10);
    first.stepwise = second.stepwise = true;
    session.run(first, x.data(), x.data());
    session.run(second, y.data(), y.data());
    session.step_end(0);
    ASSERT_EQ(x.back() + y.back(), 6.0f);
  }
}

std::vector<Links> connect(test::Wire wire) {
  if (wire == test::Wire::kInProcess) return connect_in_process(2);
  const std::string addr = test::free_address();
  std::vector<Links> links(2);
  std::vector<std::function<void()>> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.push_back([&links, &addr, rank, wire] {
      Config config = test::config_of(rank, 2, addr);
      if (wire == test::Wire::kShm) config.transport = "shm";
      links[static_cast<std::size_t>(rank)] = connect_tcp(config, 0, make_tcp_exchange(config, 0));
    });
  }
  for (const auto& error : test::run_threads(ranks)) EXPECT_EQ(test::message_of(error), "");
  return links;
}

class Memory : public testing::TestWithParam<test::Wire> {};
INSTANTIATE_TEST_SUITE_P(Wires, Memory, testing::Values(test::Wire::kInProcess, test::Wire::kTcp, test::Wire::kShm),
                         [](const auto& info) { return test::name_of(info.param); });

// Nothing else may happen than that a rank of this job ends well, or with an error that says who and why.
TEST_P(Memory, AnAllocationThatFailsIsAnErrorOnAllRanks) {
  for (int number = 0;; number += 1 + number / 100) {
    std::atomic<int> ready{0};
    const auto thrown = run_world_over(connect(GetParam()), [&](Session& session) {
      if (++ready == 2) good_allocations() = number;
      reduce_some(session);
    });
    const bool all_went_well = good_allocations().exchange(-1) >= 0;
    for (const std::string& text : thrown) {
      EXPECT_TRUE(text.empty() || text.find("out of memory") != std::string::npos) << text;
    }
    if (all_went_well) {
      EXPECT_GT(number, 50) << "so few allocations are none of ours";
      return;
    }
  }
}

}  // namespace
}  // namespace horo
