// Bytes that a lane sends to a rank whose lane is busy must not stall the connection, which other lanes share. Over
// TCP, because in-process links buffer no early bytes.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>

#include "tests/horo/worlds.h"
#include "tests/ring/run_ranks.h"

namespace horo {
namespace {

constexpr int kBroadcasts = 40;
constexpr std::int64_t kElements = 64 << 10;

Config config_of_rank(int rank, const std::string& addr) {
  Config config = test::config_of(rank, 3, addr);
  config.max_early_bytes = 4 << 20;  // less than the bytes of all broadcasts
  return config;
}

// In the set of ranks 0 and 1: one collective that rank 0 blocks, followed by broadcasts of rank 1.
std::vector<std::shared_ptr<Work>> submit_after_blocked(Session& session, std::uint32_t set,
                                                        std::vector<std::vector<float>>& data) {
  std::vector<std::shared_ptr<Work>> works;
  TensorSpec blocked = float_spec("blocked", 1);
  blocked.set = set;
  blocked.op = ReduceOp::kCustom;
  blocked.custom_op = "wait";
  works.push_back(session.submit(blocked, data.back().data(), data.back().data()));
  for (int i = 0; i < kBroadcasts; ++i) {
    std::vector<float>& x = data[static_cast<std::size_t>(i)];
    TensorSpec spec = spec_of(CollectiveKind::kBroadcast, std::string("b").append(std::to_string(i)), {kElements});
    spec.set = set;
    spec.root = 1;
    works.push_back(session.submit(spec, x.data(), x.data()));
  }
  return works;
}

TEST(EagerBytes, ABroadcastToABusyLaneDoesNotStallOtherSets) {
  const std::string addr = test::free_address();
  std::vector<std::function<void()>> ranks;
  for (int rank = 0; rank < 3; ++rank) {
    ranks.push_back([rank, addr] {
      Session session(config_of_rank(rank, addr));
      const auto added = session.add_set({0, 1});
      const auto set = static_cast<std::uint32_t>(outcome_of(session, added).counts.at(0));
      std::promise<void> opened;
      const std::shared_future<void> gate = opened.get_future().share();
      session.register_op({"wait", false, [gate](std::byte*, const std::byte*, std::uint64_t, DType) {
                             gate.wait();
                             return 0;
                           }});
      if (rank != 0) opened.set_value();
      std::vector<std::vector<float>> data(kBroadcasts + 1, std::vector<float>(kElements));
      std::vector<std::shared_ptr<Work>> works;
      if (rank < 2) works = submit_after_blocked(session, set, data);
      for (int i = 0; i < 100; ++i) {
        float x = 1;
        session.run(float_spec("x", 1), &x, &x);
      }
      if (rank == 0) opened.set_value();
      session.wait(works, TimePoint::max());
      for (const auto& work : works) work->outcome();
      meet(session);
    });
  }
  for (const auto& error : test::run_threads(ranks)) EXPECT_EQ(error, nullptr) << test::message_of(error);
}

}  // namespace
}  // namespace horo
