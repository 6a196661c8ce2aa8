#include "horo/tensors/tensor_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "tests/horo/worlds.h"

namespace horo {
namespace {

constexpr std::chrono::hours kForever{1};

class TensorTableTest : public testing::Test {
 protected:
  Key declare(const std::string& name) { return tensor_table_.declare(float_spec(name, 2)); }
  Key declare_of_round(TensorSpec spec) {
    spec.stepwise = spec.kind == CollectiveKind::kAllReduce;
    spec.round_stream = 5;
    return tensor_table_.declare(spec);
  }
  TensorTable::Accepted submit(Key key) {
    const Submission submission{key, data_, data_};
    return tensor_table_.submit(std::span(&submission, 1));
  }
  // Ends the collective of the submission that was taken last.
  void retire(const SubmissionBatch& batch) { tensor_table_.retire(batch.items); }
  // Activates a plan of both tensors.
  void activate(Key a, Key b) {
    tensor_table_.add_plan(1, {a, b});
    tensor_table_.step_end(0);
    tensor_table_.take();
    tensor_table_.begin_sleep();
  }
  float data_[2] = {};
  Registry registry_;
  TensorTable tensor_table_{Config{}, registry_};
};

TEST_F(TensorTableTest, AnEqualSpecHasTheSameKeyAndADifferentOneAnother) {
  const Key key = declare("x");
  EXPECT_EQ(declare("x"), key);
  EXPECT_NE(tensor_table_.declare(float_spec("x", 3)), key);
}

TEST_F(TensorTableTest, ANameInFlightIsRefusedUntilItIsRetired) {
  const Key key = declare("x");
  submit(key);
  EXPECT_THROW(submit(key), std::invalid_argument);
  retire(tensor_table_.take());
  EXPECT_NO_THROW(submit(key));
}

TEST_F(TensorTableTest, ABatchWithAMistakeQueuesNothing) {
  const Key key = declare("x");
  const std::vector<Submission> twice = {{key, data_, data_}, {key, data_, data_}};
  EXPECT_THROW(tensor_table_.submit(twice), std::invalid_argument);
  EXPECT_TRUE(tensor_table_.take().events.empty());
  EXPECT_NO_THROW(submit(key));
}

TEST_F(TensorTableTest, OnlyTheSubmitThatCompletesAPlanIsReported) {
  const Key a = declare("a"), b = declare("b");
  activate(a, b);
  EXPECT_FALSE(submit(a).wake);
  EXPECT_TRUE(tensor_table_.take().events.empty());
  const TensorTable::Accepted last = submit(b);
  EXPECT_TRUE(last.wake);
  ASSERT_EQ(last.filled.size(), 1u);
  EXPECT_EQ(last.filled[0].items->size(), 2u);
  const SubmissionBatch batch = tensor_table_.take();
  EXPECT_TRUE(std::holds_alternative<PlanComplete>(batch.events.at(0)));
  ASSERT_EQ(batch.plans.size(), 1u);
  EXPECT_EQ(batch.plans[0].items, last.filled[0].items) << "one list";
}

TEST_F(TensorTableTest, APlaceIsTheOffsetOfATensorInItsKnownPlan) {
  const Key a = tensor_table_.declare(float_spec("a", 3)), b = declare("b"), c = declare("c");
  const std::vector<Key> keys = {a, b, c};
  EXPECT_EQ(tensor_table_.places(keys)[0].plan, 0u);
  const std::uint64_t version = tensor_table_.plans_version();
  tensor_table_.add_plan(1, {b, a});
  EXPECT_EQ(tensor_table_.places(keys)[0].plan, 0u) << "the plan is not active yet";
  tensor_table_.step_end(0);
  EXPECT_GT(tensor_table_.plans_version(), version);
  const std::vector<BucketPlace> places = tensor_table_.places(keys);
  EXPECT_EQ(places[0].plan, 1u);
  EXPECT_EQ(places[0].offset, 8u);
  EXPECT_EQ(places[0].bytes, 20u);
  EXPECT_EQ(places[1].offset, 0u);
  EXPECT_EQ(places[2].plan, 0u);
  tensor_table_.remove_plan(1);
  EXPECT_GT(tensor_table_.plans_version(), version + 1);
  EXPECT_EQ(tensor_table_.places(keys)[0].plan, 0u);
}

TEST_F(TensorTableTest, ABegunRoundWakesNoEngineAndBreaksNoPlanOfOtherTensors) {
  const Key a = declare_of_round(float_spec("a", 2)), b = declare("b");
  activate(a, b);
  tensor_table_.begin_round({{0, 5}, {7, 1}});
  EXPECT_FALSE(submit(b).wake);
  tensor_table_.begin_round({{0, 5}, {7, 2}});
  tensor_table_.wait_for_quiet(TimePoint::max(), kForever);  // nothing is being gathered
  EXPECT_TRUE(tensor_table_.begin_sleep());
  EXPECT_TRUE(submit(a).wake) << "the engine was woken by the begin of a round";
  EXPECT_TRUE(std::holds_alternative<PlanComplete>(tensor_table_.take().events.at(2)));
}

TEST_F(TensorTableTest, WhatWaitsForItsPlanIsReportedBeforeTheNextRound) {
  const Key a = declare_of_round(float_spec("a", 2)), b = declare("b");
  activate(a, b);
  submit(a);
  EXPECT_TRUE(tensor_table_.fail_round({{0, 5}, "no"}));
  const SubmissionBatch batch = tensor_table_.take();
  ASSERT_EQ(batch.events.size(), 2U);
  EXPECT_TRUE(std::holds_alternative<Submitted>(batch.events[0]));
  EXPECT_TRUE(std::holds_alternative<RoundFailed>(batch.events[1]));
}

TEST_F(TensorTableTest, WhatWaitsForItsPlanIsReportedBeforeTheBarrierOfItsRound) {
  const Key a = declare_of_round(float_spec("a", 2)), b = declare("b");
  const Submission barrier{declare_of_round(spec_of(CollectiveKind::kBarrier, "end", {}))};
  activate(a, b);
  submit(a);
  tensor_table_.submit(std::span(&barrier, 1));
  const SubmissionBatch batch = tensor_table_.take();
  EXPECT_EQ(batch.items.at(0).submission.key, a) << "the barrier commits what is reported before it";
}

TEST_F(TensorTableTest, OnlyTheFirstSubmissionWhileTheEngineSleepsWakesIt) {
  const Key a = declare("a"), b = declare("b"), c = declare("c");
  EXPECT_TRUE(submit(a).wake);
  EXPECT_FALSE(submit(b).wake);
  EXPECT_FALSE(tensor_table_.begin_sleep());
  EXPECT_EQ(tensor_table_.take().events.size(), 2u);
  EXPECT_TRUE(tensor_table_.begin_sleep());
  EXPECT_TRUE(submit(c).wake);
}

TEST_F(TensorTableTest, SubmissionsThatNoCallerWaitsForAreCollectedUntilAPause) {
  const Key a = declare("a");
  tensor_table_.wait_for_quiet(TimePoint::max(), kForever);  // the queue is empty
  submit(a);
  const TimePoint quiet = Clock::now() + std::chrono::milliseconds(5);
  tensor_table_.wait_for_quiet(TimePoint::max(), std::chrono::milliseconds(5));
  EXPECT_GE(Clock::now(), quiet);
  const TimePoint until = Clock::now() + std::chrono::milliseconds(5);
  tensor_table_.wait_for_quiet(until, kForever);
  EXPECT_GE(Clock::now(), until);
  tensor_table_.nudge(std::span(&a, 1));
  tensor_table_.wait_for_quiet(TimePoint::max(), kForever);
  EXPECT_EQ(tensor_table_.take().events.size(), 1u);
}

TEST_F(TensorTableTest, ABurstIsCollectedToItsEnd) {
  std::vector<Key> keys;
  for (int i = 0; i < 10; ++i) keys.push_back(declare("t" + std::to_string(i)));
  submit(keys.front());
  std::thread burst([&] {
    for (std::size_t i = 1; i < keys.size(); ++i) {
      const TimePoint next = Clock::now() + std::chrono::milliseconds(2);
      while (Clock::now() < next) std::this_thread::yield();
      submit(keys[i]);
    }
  });
  tensor_table_.wait_for_quiet(TimePoint::max(), std::chrono::milliseconds(500));
  EXPECT_EQ(tensor_table_.take().events.size(), keys.size());
  burst.join();
}

TEST_F(TensorTableTest, ALargeQueueIsFlushedAtOnce) {
  const std::size_t half = SubmissionQueue::kFlushBytes / sizeof(float) / 2;
  const Key a = tensor_table_.declare(float_spec("a", half)), b = tensor_table_.declare(float_spec("b", half));
  submit(a);
  const SubmissionBatch first = tensor_table_.take();
  EXPECT_EQ(first.events.size(), 1u);
  submit(b);
  const TimePoint quiet = Clock::now() + std::chrono::milliseconds(5);
  tensor_table_.wait_for_quiet(TimePoint::max(), std::chrono::milliseconds(5));
  EXPECT_GE(Clock::now(), quiet) << "bytes that were taken do not count";
  retire(first);
  submit(a);
  tensor_table_.wait_for_quiet(TimePoint::max(), kForever);
  EXPECT_EQ(tensor_table_.take().events.size(), 2u);
}

TEST_F(TensorTableTest, ACompletePlanAndARequestAreFlushedAtOnce) {
  const Key a = declare("a"), b = declare("b");
  activate(a, b);
  submit(a);
  submit(b);
  tensor_table_.wait_for_quiet(TimePoint::max(), kForever);
  tensor_table_.take();
  TensorSpec join;
  join.kind = CollectiveKind::kJoin;
  tensor_table_.request(join);
  tensor_table_.wait_for_quiet(TimePoint::max(), kForever);
  EXPECT_EQ(tensor_table_.take().events.size(), 1u);
}

TEST_F(TensorTableTest, AWaitForAnIncompletePlanReportsItsSubmissions) {
  const Key a = declare("a"), b = declare("b");
  activate(a, b);
  submit(a);
  EXPECT_TRUE(tensor_table_.nudge(std::span(&a, 1)));
  EXPECT_TRUE(std::holds_alternative<Submitted>(tensor_table_.take().events.at(0)));
  submit(b);
  EXPECT_TRUE(std::holds_alternative<Submitted>(tensor_table_.take().events.at(0)));
}

TEST_F(TensorTableTest, APlanIsNotActivatedWhileOneOfItsTensorsIsInFlight) {
  const Key a = declare("a"), b = declare("b");
  submit(a);
  const SubmissionBatch batch = tensor_table_.take();
  activate(a, b);
  retire(batch);
  submit(b);
  EXPECT_TRUE(std::holds_alternative<Submitted>(tensor_table_.take().events.at(0)));
}

TEST_F(TensorTableTest, UnreportedSubmissionsOfARemovedPlanFollowTheBeginOfTheirRound) {
  const Key a = declare_of_round(float_spec("a", 2));
  activate(a, declare("b"));
  tensor_table_.begin_round({{0, 5}, {7, 1}});
  submit(a);
  tensor_table_.remove_plan(1);
  const SubmissionBatch batch = tensor_table_.take();
  ASSERT_EQ(batch.events.size(), 2u);
  EXPECT_TRUE(std::holds_alternative<RoundBegun>(batch.events[0]));
  EXPECT_EQ(std::get<Submitted>(batch.events[1]).key, a);
}

TEST_F(TensorTableTest, UnnamedTensorsAreNumberedAndTheirKeysReused) {
  TensorSpec unnamed = float_spec("", 2);
  unnamed.once = true;
  const Key first = tensor_table_.declare(unnamed);
  EXPECT_EQ(tensor_table_.take().declared.at(0).second->name, "all_reduce#0");
  submit(first);
  retire(tensor_table_.take());
  EXPECT_EQ(tensor_table_.declare(unnamed), first);
  EXPECT_EQ(tensor_table_.take().declared.at(0).second->name, "all_reduce#1");
}

TEST_F(TensorTableTest, ARefusedUnnamedCallIsNotCounted) {
  Config config;
  config.max_tensors = 1;
  TensorTable tensor_table(config, registry_);
  TensorSpec unnamed = float_spec("", 2);
  unnamed.once = true;
  const Key key = tensor_table.declare(unnamed);
  EXPECT_THROW(tensor_table.declare(unnamed), std::invalid_argument);
  EXPECT_THROW(tensor_table.declare(float_spec("x", 2)), std::invalid_argument);
  const Submission submission{key, data_, data_};
  tensor_table.submit(std::span(&submission, 1));
  tensor_table.retire(tensor_table.take().items);
  tensor_table.declare(unnamed);
  EXPECT_EQ(tensor_table.take().declared.at(0).second->name, "all_reduce#1");
}

Config keeping(std::size_t tensors, std::size_t most) {
  Config config;
  config.kept_tensors = tensors;
  config.max_tensors = most;
  return config;
}

// A table with few kept tensors. run() submits by spec, and the collective ends.
class SmallTableTest : public TensorTableTest {
 protected:
  Key run(TensorTable& table, const std::string& name) {
    const TensorTable::Accepted accepted = table.submit(float_spec(name, 2), {0, data_, data_});
    last_ = table.take();
    table.retire(last_.items);
    return accepted.works.front()->key();
  }
  SubmissionBatch last_;
  TensorTable table_{keeping(8, 16), registry_};
};

TEST_F(SmallTableTest, NewNamesForEverNeedFewKeys) {
  std::size_t freed = 0;
  for (int i = 0; i < 10'000; ++i) {
    ASSERT_LT(run(table_, "loss." + std::to_string(i)), 10U);
    freed += last_.undeclared.size();
    ASSERT_EQ(last_.declared.size(), 1U);
  }
  EXPECT_GE(freed, 9'990U);
}

TEST_F(SmallTableTest, ATensorThatIsUsedOftenKeepsItsKey) {
  const Key key = run(table_, "x");
  for (int i = 0; i < 100; ++i) {
    run(table_, "loss." + std::to_string(i));
    ASSERT_EQ(run(table_, "x"), key);
    ASSERT_TRUE(last_.declared.empty());
  }
}

TEST_F(SmallTableTest, ADeclaredKeyStaysValid) {
  const Key key = table_.declare(float_spec("x", 2));
  for (int i = 0; i < 100; ++i) ASSERT_NE(run(table_, "loss." + std::to_string(i)), key);
  EXPECT_EQ(run(table_, "x"), key);
}

TEST_F(SmallTableTest, AKeyIsFreedAfterAsManyCallsOfUndeclareAsOfDeclare) {
  const Key key = table_.declare(float_spec("x", 2));
  table_.declare(float_spec("x", 2));
  const auto is_freed = [&] {
    bool freed = false;
    for (int i = 0; i < 100; ++i) {
      run(table_, "loss." + std::to_string(i));
      freed = freed || std::ranges::find(last_.undeclared, key) != last_.undeclared.end();
    }
    return freed;
  };
  table_.undeclare(std::span(&key, 1));
  EXPECT_FALSE(is_freed());
  table_.undeclare(std::span(&key, 1));
  EXPECT_TRUE(is_freed());
  EXPECT_THROW(table_.undeclare(std::span(&key, 1)), std::invalid_argument);
}

TEST_F(SmallTableTest, UndeclareChangesNothingIfOneKeyIsNotDeclared) {
  const Key key = table_.declare(float_spec("x", 2));
  const std::vector<Key> twice = {key, key};
  EXPECT_THROW(table_.undeclare(twice), std::invalid_argument);
  EXPECT_NO_THROW(table_.undeclare(std::span(&key, 1)));
}

TEST_F(SmallTableTest, ATensorInFlightKeepsItsKey) {
  const auto slow = table_.submit(float_spec("slow", 2), {0, data_, data_}).works.front();
  const SubmissionBatch batch = table_.take();
  for (int i = 0; i < 100; ++i) ASSERT_NE(run(table_, "loss." + std::to_string(i)), slow->key());
  EXPECT_EQ(batch.items.at(0).spec->name, "slow");
  table_.retire(batch.items);
  EXPECT_EQ(run(table_, "slow"), slow->key());
}

TEST_F(SmallTableTest, AStepwiseTensorKeepsItsKey) {
  TensorSpec gradient = float_spec("g", 2);
  gradient.stepwise = true;
  const Key key = table_.submit(gradient, {0, data_, data_}).works.front()->key();
  table_.retire(table_.take().items);
  for (int i = 0; i < 100; ++i) ASSERT_NE(run(table_, "loss." + std::to_string(i)), key);
  EXPECT_EQ(table_.declare(gradient), key);
}

TEST_F(SmallTableTest, AFullTableFreesNamesBeforeItRefusesOne) {
  TensorTable table(keeping(1000, 4), registry_);
  for (int i = 0; i < 100; ++i) run(table, "loss." + std::to_string(i));
  for (int i = 0; i < 4; ++i) table.declare(float_spec("d" + std::to_string(i), 2));
  EXPECT_THROW(run(table, "x"), std::invalid_argument);
}

TEST_F(SmallTableTest, NamesOfUnitsAreFreedToo) {
  for (int i = 0; i < 200; ++i) {
    const std::string unit = "u" + std::to_string(i);
    table_.submit_unit(unit, {float_spec("", 2), float_spec("", 2)}, {{0, data_, data_}, {0, data_, data_}});
    last_ = table_.take();
    table_.retire(last_.items);
    for (const auto& [key, spec] : last_.declared) ASSERT_LT(key, 16U);
  }
}

TEST_F(SmallTableTest, ASpecThatChangesWithEveryCallNeedsFewKeys) {
  TensorTable table(keeping(10'000, 20'000), registry_);
  for (int rows = 1; rows < 2'000; ++rows) {
    std::vector<float> memory(static_cast<std::size_t>(rows));
    const auto work = table.submit(float_spec("x", rows), {0, memory.data(), memory.data()}).works.front();
    table.retire(table.take().items);
    ASSERT_LE(work->key(), NameTable::kMostSpecs);
  }
}

TEST_F(TensorTableTest, AClosedTableFailsItsWorksAndAcceptsNoMore) {
  const Key key = declare("x");
  const auto work = submit(key).works.front();
  EXPECT_TRUE(tensor_table_.close(shut_down("over")));
  EXPECT_FALSE(work->finished()) << "a lane may still run it";
  tensor_table_.fail_all();
  EXPECT_THROW(work->outcome(), ShutDown);
  EXPECT_FALSE(tensor_table_.has_in_flight());
  EXPECT_THROW(submit(key), ShutDown);
}

TEST_F(TensorTableTest, ASubmissionRetiredAfterCloseDoesNotFail) {
  const Key a = declare("a"), b = declare("b");
  const auto retired = submit(a).works.front();
  const SubmissionBatch batch = tensor_table_.take();
  submit(b);
  tensor_table_.close(shut_down("over"));
  retire(batch);
  tensor_table_.fail_all();
  EXPECT_FALSE(retired->finished());
  EXPECT_FALSE(tensor_table_.close(shut_down("again")));
}

}  // namespace
}  // namespace horo
