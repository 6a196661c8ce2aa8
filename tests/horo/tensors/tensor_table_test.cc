#include "horo/tensors/tensor_table.h"

#include <gtest/gtest.h>

#include <thread>

#include "tests/horo/worlds.h"

namespace horo {
namespace {

constexpr std::chrono::hours kForever{1};

class InboxTest : public testing::Test {
 protected:
  Key declare(const std::string& name) { return tensor_table_.declare(float_spec(name, 2)); }
  TensorTable::Put put(Key key) {
    const Submission submission{key, data_, data_};
    return tensor_table_.put(std::span(&submission, 1));
  }
  // A plan of both tensors, in use.
  void activate(Key a, Key b) {
    tensor_table_.learn(1, {a, b});
    tensor_table_.step_end(0);
    tensor_table_.take();
    tensor_table_.rest();
  }
  float data_[2] = {};
  Registry registry_;
  TensorTable tensor_table_{Config{}, registry_};
};

TEST_F(InboxTest, AnEqualSpecHasTheSameKeyAndADifferentOneAnother) {
  const Key key = declare("x");
  EXPECT_EQ(declare("x"), key);
  EXPECT_NE(tensor_table_.declare(float_spec("x", 3)), key);
}

TEST_F(InboxTest, ANameInFlightIsRefusedUntilItIsSettled) {
  const Key key = declare("x");
  put(key);
  EXPECT_THROW(put(key), std::invalid_argument);
  tensor_table_.settle(std::span(&key, 1));
  EXPECT_NO_THROW(put(key));
}

TEST_F(InboxTest, ABatchWithAMistakeQueuesNothing) {
  const Key key = declare("x");
  const std::vector<Submission> twice = {{key, data_, data_}, {key, data_, data_}};
  EXPECT_THROW(tensor_table_.put(twice), std::invalid_argument);
  EXPECT_TRUE(tensor_table_.take().events.empty());
  EXPECT_NO_THROW(put(key));
}

TEST_F(InboxTest, OnlyTheSubmitThatCompletesAPlanIsReported) {
  const Key a = declare("a"), b = declare("b");
  activate(a, b);
  EXPECT_FALSE(put(a).wake);
  EXPECT_TRUE(tensor_table_.take().events.empty());
  const TensorTable::Put last = put(b);
  EXPECT_TRUE(last.wake);
  ASSERT_EQ(last.filled.size(), 1u);
  EXPECT_EQ(last.filled[0].items.size(), 2u);
  EXPECT_TRUE(std::holds_alternative<PlanComplete>(tensor_table_.take().events.at(0)));
}

TEST_F(InboxTest, APlaceIsWhereAKnownPlanHasTheTensor) {
  const Key a = tensor_table_.declare(float_spec("a", 3)), b = declare("b"), c = declare("c");
  const std::vector<Key> keys = {a, b, c};
  EXPECT_EQ(tensor_table_.places(keys)[0].plan, 0u);
  const std::uint64_t version = tensor_table_.plans_version();
  tensor_table_.learn(1, {b, a});
  EXPECT_EQ(tensor_table_.places(keys)[0].plan, 0u) << "it is not used yet";
  tensor_table_.step_end(0);
  EXPECT_GT(tensor_table_.plans_version(), version);
  const std::vector<BucketPlace> places = tensor_table_.places(keys);
  EXPECT_EQ(places[0].plan, 1u);
  EXPECT_EQ(places[0].offset, 8u);
  EXPECT_EQ(places[0].bytes, 20u);
  EXPECT_EQ(places[1].offset, 0u);
  EXPECT_EQ(places[2].plan, 0u);
  tensor_table_.forget_plan(1);
  EXPECT_GT(tensor_table_.plans_version(), version + 1);
  EXPECT_EQ(tensor_table_.places(keys)[0].plan, 0u);
}

TEST_F(InboxTest, WhoHandsInWakesTheEngineOnceAndOnlyWhileItRests) {
  const Key a = declare("a"), b = declare("b"), c = declare("c");
  EXPECT_TRUE(put(a).wake);
  EXPECT_FALSE(put(b).wake);
  EXPECT_FALSE(tensor_table_.rest());
  EXPECT_EQ(tensor_table_.take().events.size(), 2u);
  EXPECT_TRUE(tensor_table_.rest());
  EXPECT_TRUE(put(c).wake);
}

TEST_F(InboxTest, WhatNobodyWaitsForIsGatheredUntilNothingMoreComes) {
  const Key a = declare("a");
  tensor_table_.gather(TimePoint::max(), kForever);  // nothing to gather
  put(a);
  const TimePoint quiet = Clock::now() + std::chrono::milliseconds(5);
  tensor_table_.gather(TimePoint::max(), std::chrono::milliseconds(5));
  EXPECT_GE(Clock::now(), quiet);
  const TimePoint until = Clock::now() + std::chrono::milliseconds(5);
  tensor_table_.gather(until, kForever);
  EXPECT_GE(Clock::now(), until);
  tensor_table_.nudge(std::span(&a, 1));
  tensor_table_.gather(TimePoint::max(), kForever);
  EXPECT_EQ(tensor_table_.take().events.size(), 1u);
}

TEST_F(InboxTest, ABurstIsGatheredToItsEnd) {
  std::vector<Key> keys;
  for (int i = 0; i < 10; ++i) keys.push_back(declare("t" + std::to_string(i)));
  put(keys.front());
  std::thread burst([&] {
    for (std::size_t i = 1; i < keys.size(); ++i) {
      const TimePoint next = Clock::now() + std::chrono::milliseconds(2);
      while (Clock::now() < next) std::this_thread::yield();
      put(keys[i]);
    }
  });
  tensor_table_.gather(TimePoint::max(), std::chrono::milliseconds(500));
  EXPECT_EQ(tensor_table_.take().events.size(), keys.size());
  burst.join();
}

TEST_F(InboxTest, MuchIsNotGatheredAnyLonger) {
  const std::size_t half = TensorTable::kGatheredBytes / sizeof(float) / 2;
  const Key a = tensor_table_.declare(float_spec("a", half)), b = tensor_table_.declare(float_spec("b", half));
  put(a);
  EXPECT_EQ(tensor_table_.take().events.size(), 1u);
  put(b);
  const TimePoint quiet = Clock::now() + std::chrono::milliseconds(5);
  tensor_table_.gather(TimePoint::max(), std::chrono::milliseconds(5));
  EXPECT_GE(Clock::now(), quiet) << "what was taken does not count";
  tensor_table_.settle(std::span(&a, 1));
  put(a);
  tensor_table_.gather(TimePoint::max(), kForever);
  EXPECT_EQ(tensor_table_.take().events.size(), 2u);
}

TEST_F(InboxTest, ACompletePlanAndAQuestionToAllAreNotKeptWaiting) {
  const Key a = declare("a"), b = declare("b");
  activate(a, b);
  put(a);
  put(b);
  tensor_table_.gather(TimePoint::max(), kForever);
  tensor_table_.take();
  TensorSpec join;
  join.kind = CollectiveKind::kJoin;
  tensor_table_.ask(join);
  tensor_table_.gather(TimePoint::max(), kForever);
  EXPECT_EQ(tensor_table_.take().events.size(), 1u);
}

TEST_F(InboxTest, AWaitForAnIncompletePlanReportsWhatIsThere) {
  const Key a = declare("a"), b = declare("b");
  activate(a, b);
  put(a);
  EXPECT_TRUE(tensor_table_.nudge(std::span(&a, 1)));
  EXPECT_TRUE(std::holds_alternative<Submitted>(tensor_table_.take().events.at(0)));
  put(b);
  EXPECT_TRUE(std::holds_alternative<Submitted>(tensor_table_.take().events.at(0)));
}

TEST_F(InboxTest, APlanIsNotUsedWhileOneOfItsTensorsIsInFlight) {
  const Key a = declare("a"), b = declare("b");
  put(a);
  activate(a, b);
  tensor_table_.settle(std::span(&a, 1));
  put(b);
  EXPECT_TRUE(std::holds_alternative<Submitted>(tensor_table_.take().events.at(0)));
}

TEST_F(InboxTest, AForgottenPlanGivesBackWhatWasNotReported) {
  const Key a = declare("a"), b = declare("b");
  activate(a, b);
  put(a);
  const std::vector<Event> events = tensor_table_.forget_plan(1);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(std::get<Submitted>(events[0]).key, a);
}

TEST_F(InboxTest, UnnamedTensorsAreNumberedAndTheirKeysUsedAgain) {
  TensorSpec unnamed = float_spec("", 2);
  unnamed.once = true;
  const Key first = tensor_table_.declare(unnamed);
  EXPECT_EQ(tensor_table_.take().declared.at(0).second->name, "all_reduce#0");
  put(first);
  tensor_table_.settle(std::span(&first, 1));
  EXPECT_EQ(tensor_table_.declare(unnamed), first);
  EXPECT_EQ(tensor_table_.take().declared.at(0).second->name, "all_reduce#1");
}

TEST_F(InboxTest, ARefusedCallWithoutANameUsesUpNoNumber) {
  Config config;
  config.max_tensors = 1;
  TensorTable tensor_table(config, registry_);
  TensorSpec unnamed = float_spec("", 2);
  unnamed.once = true;
  const Key key = tensor_table.declare(unnamed);
  EXPECT_THROW(tensor_table.declare(unnamed), std::invalid_argument);
  EXPECT_THROW(tensor_table.declare(float_spec("x", 2)), std::invalid_argument);
  const Submission submission{key, data_, data_};
  tensor_table.put(std::span(&submission, 1));
  tensor_table.settle(std::span(&key, 1));
  tensor_table.take();
  tensor_table.declare(unnamed);
  EXPECT_EQ(tensor_table.take().declared.at(0).second->name, "all_reduce#1");
}

TEST_F(InboxTest, AClosedInboxFailsItsWorksAndTakesNoMore) {
  const Key key = declare("x");
  const auto work = put(key).works.front();
  EXPECT_TRUE(tensor_table_.close(shut_down("over")));
  EXPECT_FALSE(work->finished()) << "a lane may still be at it";
  tensor_table_.fail_all();
  EXPECT_THROW(work->outcome(), ShutDown);
  EXPECT_FALSE(tensor_table_.has_in_flight());
  EXPECT_THROW(put(key), ShutDown);
}

TEST_F(InboxTest, WhatIsSettledAfterTheCloseIsNotFailed) {
  const Key a = declare("a"), b = declare("b");
  const auto settled = put(a).works.front();
  put(b);
  tensor_table_.close(shut_down("over"));
  tensor_table_.settle(std::span(&a, 1));
  tensor_table_.fail_all();
  EXPECT_FALSE(settled->finished());
  EXPECT_FALSE(tensor_table_.close(shut_down("again")));
}

}  // namespace
}  // namespace horo
