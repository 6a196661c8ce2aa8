// The names of messages that have none, in a new epoch, of other ranks: the two ranks of a message agree on it.
#include <gtest/gtest.h>

#include <span>
#include <string>
#include <vector>

#include "horo/tensors/tensor_table.h"
#include "tests/horo/worlds.h"

namespace horo {
namespace {

// Of 4 ranks, of which rank 1 is lost: the tables of rank 0 and of rank 2, which is rank 1 then.
class LostMessagesTest : public testing::Test {
 protected:
  // The name of a message, which stays in flight.
  std::string submit(TensorTable& table, int from, int to) {
    TensorSpec spec = float_spec("", 2);
    spec.kind = CollectiveKind::kSendRecv;
    spec.once = true;
    spec.root = from;
    spec.peer = to;
    table.submit(spec, {0, data_, data_});
    in_flight_ = table.take().items;
    return in_flight_.back().spec->name;
  }
  std::string run(TensorTable& table, int from, int to) {
    const std::string name = submit(table, from, to);
    table.retire(std::span(in_flight_).last(1));
    return name;
  }
  void lose_rank(TensorTable& table, int rank) {
    table.begin_epoch({1, rank, 3, {0, -1, 1, 2}, "rank 1 died"});
    for (const Event& event : table.take().events) lost_.push_back(std::get<Submitted>(event).lost);
  }
  void see(TensorTable& table) { table.see(1); }

  static Config config(int rank) {
    Config config;
    config.rank = rank;
    config.size = 4;
    config.min_np = 1;
    return config;
  }

  float data_[2] = {};
  Registry registry_;
  TensorTable first_{config(0), registry_}, third_{config(2), registry_};
  std::vector<Item> in_flight_;
  std::vector<bool> lost_;
};

TEST_F(LostMessagesTest, APairGoesOnCountingUnderItsNewNumbers) {
  for (int i = 0; i < 3; ++i) run(first_, 0, 1);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(run(first_, 0, 2), run(third_, 0, 2));
  lose_rank(first_, 0);
  lose_rank(third_, 1);
  see(first_);
  see(third_);
  EXPECT_EQ(run(first_, 0, 1), "send_recv#2 (0 to 1)");
  EXPECT_EQ(run(third_, 0, 1), "send_recv#2 (0 to 1)");
  EXPECT_EQ(run(first_, 2, 0), "send_recv#0 (2 to 0)");
}

TEST_F(LostMessagesTest, AMessageThatIsLostDoesNotCount) {
  run(first_, 0, 2);
  run(third_, 0, 2);
  submit(first_, 0, 2);
  const std::vector<Item> lost = in_flight_;
  lose_rank(first_, 0);
  lose_rank(third_, 1);
  EXPECT_EQ(lost_, std::vector<bool>{true});
  first_.retire(lost);
  see(third_);
  const std::string received = submit(third_, 0, 1);
  EXPECT_NE(run(first_, 0, 2), run(first_, 0, 2));  // the caller has not seen the epoch
  see(first_);
  EXPECT_EQ(run(first_, 0, 1), received);
}

TEST_F(LostMessagesTest, AMessageThatRunsAgainKeepsItsName) {
  run(first_, 0, 3);
  EXPECT_EQ(submit(first_, 3, 0), "send_recv#0 (3 to 0)");
  first_.begin_epoch({1, 0, 5, {0, 1, 2, 3}, "rank 4 joins", true});
  see(first_);
  EXPECT_EQ(submit(first_, 3, 0), "send_recv#1 (3 to 0)");
  EXPECT_EQ(submit(first_, 0, 3), "send_recv#1 (0 to 3)");
  EXPECT_EQ(submit(first_, 0, 4), "send_recv#0 (0 to 4)");
}

}  // namespace
}  // namespace horo
