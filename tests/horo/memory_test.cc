// Memory runs out during a job: each allocation of horo's threads fails once, in turn.

#include <gtest/gtest.h>

#include <atomic>

#include "tests/effort.h"
#include "tests/horo/failing_new.h"
#include "tests/horo/worlds.h"
#include "tests/ring/run_ranks.h"

namespace horo {
namespace {

void reduce_some(Session& session) {
  const auto sum = static_cast<float>(3 * session.topology().size);
  for (int step = 0; step < 4; ++step) {
    std::vector<float> x(2000, 1.0f), y(10, 2.0f);
    TensorSpec first = float_spec("x", 2000);
    TensorSpec second = float_spec("y", 10);
    first.stepwise = second.stepwise = true;
    session.run(first, x.data(), x.data());
    session.run(second, y.data(), y.data());
    session.step_end(0);
    ASSERT_EQ(x.back() + y.back(), sum);
  }
}

// Works that do not end in a bucket of the lane of the world.
void do_the_rest(Session& session) {
  std::vector<float> x(10, 1.0f);
  const auto added = session.add_set({0});
  const auto unnamed = session.submit(spec_of(CollectiveKind::kAllReduce, "", {10}), x.data(), x.data());
  const auto set = static_cast<std::uint32_t>(outcome_of(session, added).counts.at(0));
  outcome_of(session, unnamed);
  ASSERT_EQ(x.back(), 2.0f);
  const auto joined = session.join(0);
  ASSERT_EQ(outcome_of(session, joined).counts.size(), 1u);
  outcome_of(session, session.remove_set(set));
  meet(session);
}

// Ranks 0 and 1 share a host; the other ranks are on another host.
void place(Config& config) {
  config.host_id = config.rank < 2 ? "one" : "other";
}

std::vector<Links> connect(test::Wire wire, int size = 2) {
  if (wire == test::Wire::kInProcess) return connect_in_process(2);
  const std::string addr = test::free_address();
  std::vector<Links> links(static_cast<std::size_t>(size));
  std::vector<std::function<void()>> ranks;
  for (int rank = 0; rank < size; ++rank) {
    ranks.push_back([&links, &addr, rank, size, wire] {
      Config config = test::config_of(rank, size, addr);
      if (wire == test::Wire::kShm) config.transport = "shm";
      place(config);
      links[static_cast<std::size_t>(rank)] = connect_tcp(config, 0, make_tcp_exchange(config, 0));
    });
  }
  for (const auto& error : test::run_threads(ranks)) EXPECT_EQ(test::message_of(error), "");
  return links;
}

class Memory : public testing::TestWithParam<test::Wire> {};
INSTANTIATE_TEST_SUITE_P(Wires, Memory, testing::Values(test::Wire::kInProcess, test::Wire::kTcp, test::Wire::kShm),
                         [](const auto& info) { return test::name_of(info.param); });

constexpr int kStride = test::kSanitized ? 7 : 3;  // between the allocations that fail

using IsGood = std::function<bool(const std::string&)>;

struct World {
  test::Wire wire;
  int size = 2;
  int stride = kStride;
};

// Runs the job once for each allocation of horo's threads, which fails together with the following ones, `bad` in
// total. Each rank must succeed or end with an error that satisfies `is_good`.
void fail_each_allocation(World world, void (*job)(Session&), int bad, const IsGood& is_good) {
  bad_allocations() = bad;
  for (int number = 0;; number += world.stride + number / 100) {
    std::atomic<int> ready{0};
    const auto run_job = [&](Session& session) {
      if (++ready == world.size) good_allocations() = number;
      job(session);
    };
    const auto thrown = run_world_over(connect(world.wire, world.size), run_job, {}, place);
    const bool all_went_well = good_allocations().exchange(kAllGood) >= 0;
    for (const std::string& text : thrown) EXPECT_TRUE(text.empty() || is_good(text)) << text;
    if (all_went_well) {
      EXPECT_GT(number, 50) << "the tested code allocates more often";
      return;
    }
  }
}

TEST_P(Memory, AFailedAllocationIsAnErrorWithItsCauseOnAllRanks) {
  const auto says_why = [](const std::string& text) { return text.find("out of memory") != std::string::npos; };
  fail_each_allocation({GetParam()}, reduce_some, 1, says_why);
  fail_each_allocation({GetParam()}, do_the_rest, 1, says_why);
}

// The other ranks may detect only a closed connection, which in-process links do not have.
class ScarceMemory : public testing::TestWithParam<test::Wire> {};
INSTANTIATE_TEST_SUITE_P(Wires, ScarceMemory, testing::Values(test::Wire::kTcp, test::Wire::kShm),
                         [](const auto& info) { return test::name_of(info.param); });

TEST_P(ScarceMemory, TheJobEndsIfTheErrorTextCannotBeAllocatedEither) {
  const auto names_a_rank = [](const std::string& text) { return text.find("rank ") != std::string::npos; };
  fail_each_allocation({GetParam()}, reduce_some, 5, names_a_rank);
  fail_each_allocation({GetParam()}, do_the_rest, 5, names_a_rank);
}

TEST(MemoryOfTwoHosts, TheJobEndsOnAHostWithSeveralRanks) {
  const auto names_a_rank = [](const std::string& text) { return text.find("rank ") != std::string::npos; };
  fail_each_allocation({test::Wire::kShm, 3, 3 * kStride}, reduce_some, 1, names_a_rank);
}

}  // namespace
}  // namespace horo
