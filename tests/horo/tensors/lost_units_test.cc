// Units of tensors in a new epoch, of other ranks.
#include <gtest/gtest.h>

#include "horo/tensors/tensor_table.h"
#include "tests/horo/worlds.h"

namespace horo {
namespace {

class LostUnitsTest : public testing::Test {
 protected:
  // A unit of an all_reduce, a broadcast of rank 2 and an all_reduce.
  void submit_unit(const std::string& name) {
    std::vector<TensorSpec> specs(3, float_spec("", 2));
    specs[1].kind = CollectiveKind::kBroadcast;
    specs[1].root = 2;
    table_.submit_unit(name, specs, std::vector<Submission>(3, Submission{0, data_, data_}));
  }
  // Rank 1 of 4 is lost.
  void lose_rank() { table_.begin_epoch({1, 0, 3, {0, -1, 1, 2}, "rank 1 died"}); }
  std::vector<Submitted> reports() {
    std::vector<Submitted> reports;
    for (const Event& event : table_.take().events) reports.push_back(std::get<Submitted>(event));
    return reports;
  }

  float data_[2] = {};
  Registry registry_;
  TensorTable table_{config(), registry_};

 private:
  static Config config() {
    Config config;
    config.size = 4;
    config.min_np = 1;
    return config;
  }
};

TEST_F(LostUnitsTest, AUnitOfWhichOneTensorIsLostIsLost) {
  submit_unit("u");
  table_.take();
  lose_rank();
  const std::vector<Submitted> found = reports();
  ASSERT_EQ(found.size(), 3u);
  for (const Submitted& one : found) EXPECT_TRUE(one.lost && !one.alone) << one.key;
}

TEST_F(LostUnitsTest, AUnitOfACallerThatHasNotSeenTheEpochIsLost) {
  lose_rank();
  submit_unit("u");
  const std::vector<Submitted> found = reports();
  ASSERT_EQ(found.size(), 3u);
  for (const Submitted& one : found) EXPECT_TRUE(one.lost) << one.key;
  table_.see(1);
  submit_unit("v");
  for (const Submitted& one : reports()) EXPECT_FALSE(one.lost) << one.key;
}

TEST_F(LostUnitsTest, WhatIsLeftOfAUnitIsReportedAlone) {
  submit_unit("u");
  const SubmissionBatch batch = table_.take();
  table_.retire(std::span(batch.items).first(2));
  lose_rank();
  const std::vector<Submitted> found = reports();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_TRUE(found[0].alone && !found[0].lost);
}

TEST_F(LostUnitsTest, AnotherUnitIsNotLost) {
  submit_unit("u");
  std::vector<TensorSpec> specs(2, float_spec("", 2));
  table_.submit_unit("v", specs, std::vector<Submission>(2, Submission{0, data_, data_}));
  table_.take();
  lose_rank();
  const std::vector<Submitted> found = reports();
  ASSERT_EQ(found.size(), 5u);
  for (std::size_t i = 0; i < 5; ++i) EXPECT_EQ(found[i].lost, i < 3) << i;
}

}  // namespace
}  // namespace horo
