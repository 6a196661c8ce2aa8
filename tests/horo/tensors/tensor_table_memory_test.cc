// Memory runs out in the thread of a caller: its submissions are then queued completely or not at all.

#include <gtest/gtest.h>

#include <cmath>
#include <new>

#include "tests/horo/failing_new.h"
#include "tests/horo/worlds.h"
#include "tests/ring/run_ranks.h"

namespace horo {
namespace {

// Runs the call with allocation `number` (from 0) of this thread failing. False: the call threw std::bad_alloc.
bool try_failing(int number, const std::function<void()>& call) {
  good_allocations_here() = number;
  bool succeeded = true;
  try {
    call();
  } catch (const std::bad_alloc&) {
    succeeded = false;
  }
  good_allocations_here() = -1;
  return succeeded;
}

// A tensor table with a plan of a and b, of which a is submitted, and with c, which is in no plan.
class ScarceTable {
 public:
  ScarceTable() {
    for (const char* name : {"a", "b", "c"}) keys.push_back(tensor_table.declare(float_spec(name, 2)));
    tensor_table.add_plan(1, {keys[0], keys[1]});
    tensor_table.step_end(0);
    first = submit(std::span(keys).first(1)).works.front();
    tensor_table.take();
    tensor_table.begin_sleep();
  }
  TensorTable::Accepted submit(std::span<const Key> some) {
    std::vector<Submission> submissions;
    for (const Key key : some) submissions.push_back({key, data, data});
    return tensor_table.submit(submissions);
  }
  // A call that failed had no effect.
  void expect_untouched() {
    EXPECT_TRUE(tensor_table.take().events.empty());
    tensor_table.close(shut_down("over"));
    tensor_table.fail_all();
    EXPECT_TRUE(first->finished());
  }

  float data[2] = {};
  Registry registry;
  TensorTable tensor_table{test::config_of(0, 2, ""), registry};
  std::vector<Key> keys;
  std::shared_ptr<Work> first;
};

// Makes the call on a new tensor table once for each of its allocations, which fails, until a call has fewer
// allocations. After a failure the test calls `again` on the same table.
void with_each_allocation_failing(const std::function<void(ScarceTable&)>& call,
                                  const std::function<void(ScarceTable&)>& again) {
  for (int number = 0;; ++number) {
    ScarceTable untouched, retried;
    if (try_failing(number, [&] { call(retried); })) {
      EXPECT_GT(number, 2) << "the tested code allocates more often";
      return;
    }
    EXPECT_FALSE(try_failing(number, [&] { call(untouched); }));
    untouched.expect_untouched();
    EXPECT_TRUE(retried.tensor_table.take().events.empty());
    again(retried);
  }
}

TEST(TensorTableMemory, ABatchThatFailsDoesNotChangeItsPlan) {
  const auto call = [](ScarceTable& scarce) { scarce.submit(std::span(scarce.keys).last(2)); };
  with_each_allocation_failing(call, [](ScarceTable& scarce) {
    const TensorTable::Accepted accepted = scarce.submit(std::span(scarce.keys).last(2));
    ASSERT_EQ(accepted.filled.size(), 1u);
    EXPECT_EQ(accepted.filled[0].items->size(), 2u);
    const SubmissionBatch batch = scarce.tensor_table.take();
    ASSERT_EQ(batch.events.size(), 2u);
    EXPECT_TRUE(std::holds_alternative<PlanComplete>(batch.events[0]));
    ASSERT_EQ(batch.plans.size(), 1u);
    scarce.tensor_table.retire(*batch.plans[0].items);
    scarce.tensor_table.retire(batch.items);
    EXPECT_FALSE(scarce.tensor_table.has_in_flight());
  });
}

TEST(TensorTableMemory, APlanWithAFailedLastSubmissionIsBrokenByAWait) {
  const auto call = [](ScarceTable& scarce) {
    const std::vector<Submission> batch = {{scarce.keys[2], scarce.data, scarce.data},
                                           {scarce.keys[1], nullptr, scarce.data, true}};
    scarce.tensor_table.submit(batch);
  };
  with_each_allocation_failing(call, [](ScarceTable& scarce) {
    EXPECT_FALSE(scarce.tensor_table.nudge(std::span(scarce.keys).last(1))) << "it is not in flight";
    EXPECT_TRUE(scarce.tensor_table.nudge(std::span(scarce.keys).first(1)));
    EXPECT_EQ(scarce.tensor_table.take().events.size(), 1u);
  });
}

TEST(TensorTableMemory, AnUnnamedCallThatFailsIsNotCounted) {
  const auto call = [](ScarceTable& scarce) {
    scarce.tensor_table.submit(spec_of(CollectiveKind::kAllReduce, "", {2}), {0, scarce.data, scarce.data});
  };
  with_each_allocation_failing(call, [&call](ScarceTable& scarce) {
    call(scarce);
    const SubmissionBatch batch = scarce.tensor_table.take();
    ASSERT_EQ(batch.items.size(), 1u);
    EXPECT_EQ(batch.items.front().spec->name, "all_reduce#0");
  });
}

TEST(TensorTableMemory, AUnitThatFailsMayBeSubmittedAgain) {
  const auto call = [](ScarceTable& scarce) {
    const Submission submission{0, scarce.data, scarce.data};
    scarce.tensor_table.submit_unit("", {float_spec("", 2), float_spec("own", 2)}, {submission, submission});
  };
  with_each_allocation_failing(call, [&call](ScarceTable& scarce) {
    call(scarce);
    EXPECT_EQ(scarce.tensor_table.take().events.size(), 2u);
  });
}

TEST(TensorTableMemory, ARequestForAProcessSetThatFailsMayBeMadeAgain) {
  const auto call = [](ScarceTable& scarce) { scarce.tensor_table.request(spec_of(CollectiveKind::kAddSet, "", {0})); };
  with_each_allocation_failing(call, [&call](ScarceTable& scarce) {
    call(scarce);
    EXPECT_EQ(scarce.tensor_table.take().events.size(), 1u);
  });
}

TEST(TensorTableMemory, EveryDeclaredTensorReachesTheEngine) {
  const auto call = [](ScarceTable& scarce) { scarce.tensor_table.declare(float_spec("x", 2)); };
  with_each_allocation_failing(call, [&call](ScarceTable& scarce) {
    call(scarce);
    EXPECT_EQ(scarce.tensor_table.take().declared.size(), 1u);
  });
}

TEST(TensorTableMemory, RetireAndFailAllAllocateNothing) {
  ScarceTable scarce;
  TensorSpec unnamed = spec_of(CollectiveKind::kAllReduce, "", {2});
  for (int i = 0; i < 100; ++i) scarce.tensor_table.submit(unnamed, {0, scarce.data, scarce.data});
  const SubmissionBatch batch = scarce.tensor_table.take();
  ASSERT_EQ(batch.items.size(), 100u);
  const FailurePtr failure = shut_down("over");
  good_allocations_here() = 0;
  scarce.tensor_table.retire(batch.items);
  const bool in_flight = scarce.tensor_table.close(failure);
  scarce.tensor_table.fail_all();
  good_allocations_here() = -1;
  EXPECT_TRUE(in_flight);
  EXPECT_THROW(scarce.first->outcome(), ShutDown);
}

// An exception means that nothing was queued, so the submission may be repeated. Queued submissions are run.
TEST(TensorTableMemory, AFailedSubmitMayBeRepeatedAndASuccessfulOneIsRun) {
  const auto thrown = run_world(2, [](Session& session) {
    std::vector<float> x(20, 1.0f), y(10, 2.0f);
    TensorSpec first = float_spec("x", 20), second = float_spec("y", 10);
    first.stepwise = second.stepwise = true;
    const std::vector<Submission> step = {{session.declare(first), x.data(), x.data()},
                                          {session.declare(second), y.data(), y.data()}};
    for (int number = 0; number < 30; ++number) {
      std::vector<std::shared_ptr<Work>> works;
      if (!try_failing(number, [&] { works = session.submit(step); })) works = session.submit(step);
      for (const auto& work : works) outcome_of(session, work);
      session.step_end(0);
    }
    meet(session);
    EXPECT_EQ(x.back(), std::ldexp(1.0f, 30));
  });
  EXPECT_EQ(thrown, std::vector<std::string>(2));
}

}  // namespace
}  // namespace horo
