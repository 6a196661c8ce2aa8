#include "horo/base/counters.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

namespace horo {
namespace {

constexpr Traffic kTraffic{.bytes_sent = 100, .bytes_received = 90, .frames_sent = 3, .frames_received = 2};

TEST(Counters, JsonHoldsEverySumUnderItsKey) {
  Counters counters;
  counters.add_submitted(5);
  counters.add_bucket(3, 0xabc);
  counters.add_bucket(2, 0xabc);
  counters.add_packed(70);
  counters.add_unpacked(60);
  counters.add_commit(4, true);
  counters.add_commit(1, false);
  const auto json = nlohmann::json::parse(counters.json());
  EXPECT_EQ(json["submitted"], 5);
  EXPECT_EQ(json["buckets"], 2);
  EXPECT_EQ(json["bucketed_tensors"], 5);
  EXPECT_EQ(json["bucket_compositions"], 1);
  EXPECT_EQ(json["packed_bytes"], 70);
  EXPECT_EQ(json["unpacked_bytes"], 60);
  EXPECT_EQ(json["committed_rounds"], 1);
  EXPECT_EQ(json["committed_collectives"], 5);
  EXPECT_TRUE(json["collectives"].empty());
}

TEST(Counters, JsonNamesSetKindAndAlgorithmOfEachCollective) {
  Counters counters;
  counters.add_collective(0, CollectiveKind::kAllReduce, "direct", 64, kTraffic);
  counters.add_collective(0, CollectiveKind::kAllReduce, "direct", 64, kTraffic);
  counters.add_collective(1, CollectiveKind::kBroadcast, "tree \"a\\b\"\n", 8, kTraffic);
  const auto json = nlohmann::json::parse(counters.json())["collectives"];
  ASSERT_EQ(json.size(), 2U);
  EXPECT_EQ(json[0], nlohmann::json::parse(
                         R"({"set": 0, "set_name": "world", "kind": "all_reduce", "algorithm": "direct", "count": 2,
      "payload_bytes": 128, "bytes_sent": 200, "bytes_received": 180, "frames_sent": 6, "frames_received": 4})"));
  EXPECT_EQ(json[1]["algorithm"], "tree \"a\\b\"\n");
}

TEST(Counters, CollectivesAreSummedOverAlgorithmsOfOneSetAndKind) {
  Counters counters;
  counters.add_collective(0, CollectiveKind::kAllReduce, "direct", 64, kTraffic);
  counters.add_collective(0, CollectiveKind::kAllReduce, "ring", 36, kTraffic);
  counters.add_collective(0, CollectiveKind::kBarrier, "direct", 0, kTraffic);
  counters.add_collective(1, CollectiveKind::kAllReduce, "direct", 7, kTraffic);
  const auto sum = counters.collectives(0, CollectiveKind::kAllReduce);
  EXPECT_EQ(sum.count, 2U);
  EXPECT_EQ(sum.payload_bytes, 100U);
  EXPECT_EQ(sum.traffic.bytes_sent, 200U);
  EXPECT_EQ(counters.collectives(2, CollectiveKind::kAllReduce).count, 0U);
}

TEST(Counters, ControlMessagesAddUp) {
  Counters counters;
  counters.add_control({.messages = 2, .bytes = 50, .messages_with_names = 1, .messages_with_bits = 1});
  counters.add_control({.messages = 1, .bytes = 9, .messages_with_names = 0, .messages_with_bits = 1});
  const auto json = nlohmann::json::parse(counters.json())["control"];
  EXPECT_EQ(json["messages"], 3);
  EXPECT_EQ(json["bytes"], 59);
  EXPECT_EQ(json["messages_with_names"], 1);
  EXPECT_EQ(counters.control().messages_with_bits, 2U);
}

TEST(Counters, NothingIsLostWhenThreadsAddTogether) {
  Counters counters;
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&] {
        for (int i = 0; i < 1000; ++i) counters.add_collective(0, CollectiveKind::kAllReduce, "direct", 1, kTraffic);
      });
    }
  }
  EXPECT_EQ(counters.collectives(0, CollectiveKind::kAllReduce).traffic.bytes_sent, 400'000U);
}

}  // namespace
}  // namespace horo
