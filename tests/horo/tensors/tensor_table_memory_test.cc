// Memory runs out in the caller's thread: what it hands in is then queued whole or not at all.

#include <gtest/gtest.h>

#include <cmath>
#include <new>

#include "tests/horo/failing_new.h"
#include "tests/horo/worlds.h"
#include "tests/ring/run_ranks.h"

namespace horo {
namespace {

// Whether the call, of which allocation `number` (from 0) of this thread fails, went well.
bool try_failing(int number, const std::function<void()>& call) {
  good_allocations_here() = number;
  bool went_well = true;
  try {
    call();
  } catch (const std::bad_alloc&) {
    went_well = false;
  }
  good_allocations_here() = -1;
  return went_well;
}

// An tensor_table with a plan of a and b, of which a is submitted, and with c, which is in no plan.
class ScarceInbox {
 public:
  ScarceInbox() {
    for (const char* name : {"a", "b", "c"}) keys.push_back(tensor_table.declare(float_spec(name, 2)));
    tensor_table.learn(1, {keys[0], keys[1]});
    tensor_table.step_end(0);
    first = put(std::span(keys).first(1)).works.front();
    tensor_table.take();
    tensor_table.rest();
  }
  TensorTable::Put put(std::span<const Key> some) {
    std::vector<Submission> submissions;
    for (const Key key : some) submissions.push_back({key, data, data});
    return tensor_table.put(submissions);
  }
  // Nothing of a call that failed is left.
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

// Tries the call on a new tensor_table with each of its allocations failing, until all go well. After a failure `again`
// is what the caller may still do.
void with_each_allocation_failing(const std::function<void(ScarceInbox&)>& call,
                                  const std::function<void(ScarceInbox&)>& again) {
  for (int number = 0;; ++number) {
    ScarceInbox untouched, retried;
    if (try_failing(number, [&] { call(retried); })) {
      EXPECT_GT(number, 2) << "so few allocations are none of ours";
      return;
    }
    EXPECT_FALSE(try_failing(number, [&] { call(untouched); }));
    untouched.expect_untouched();
    EXPECT_TRUE(retried.tensor_table.take().events.empty());
    again(retried);
  }
}

TEST(InboxMemory, ABatchThatFailsForWantOfMemoryLeavesItsPlanAsItWas) {
  const auto call = [](ScarceInbox& scarce) { scarce.put(std::span(scarce.keys).last(2)); };
  with_each_allocation_failing(call, [](ScarceInbox& scarce) {
    const TensorTable::Put put = scarce.put(std::span(scarce.keys).last(2));
    ASSERT_EQ(put.filled.size(), 1u);
    EXPECT_EQ(put.filled[0].items.size(), 2u);
    const std::vector<Event> events = scarce.tensor_table.take().events;
    ASSERT_EQ(events.size(), 2u);
    EXPECT_TRUE(std::holds_alternative<PlanComplete>(events[0]));
    scarce.tensor_table.settle(scarce.keys);
    EXPECT_FALSE(scarce.tensor_table.has_in_flight());
  });
}

TEST(InboxMemory, APlanWhoseLastTensorFailedIsBrokenByAWaitForTheOthers) {
  const auto call = [](ScarceInbox& scarce) {
    const std::vector<Submission> batch = {{scarce.keys[2], scarce.data, scarce.data},
                                           {scarce.keys[1], nullptr, scarce.data, true}};
    scarce.tensor_table.put(batch);
  };
  with_each_allocation_failing(call, [](ScarceInbox& scarce) {
    EXPECT_FALSE(scarce.tensor_table.nudge(std::span(scarce.keys).last(1))) << "it is not in flight";
    EXPECT_TRUE(scarce.tensor_table.nudge(std::span(scarce.keys).first(1)));
    EXPECT_EQ(scarce.tensor_table.take().events.size(), 1u);
  });
}

TEST(InboxMemory, ACallWithoutANameThatFailsUsesUpNoNumber) {
  const auto call = [](ScarceInbox& scarce) {
    scarce.tensor_table.put(spec_of(CollectiveKind::kAllReduce, "", {2}), {0, scarce.data, scarce.data});
  };
  with_each_allocation_failing(call, [&call](ScarceInbox& scarce) {
    call(scarce);
    const TensorTable::Batch batch = scarce.tensor_table.take();
    ASSERT_EQ(batch.events.size(), 1u);
    const Key key = std::get<Submitted>(batch.events[0]).key;
    EXPECT_EQ(scarce.tensor_table.items(std::span(&key, 1)).front().spec->name, "all_reduce#0");
  });
}

TEST(InboxMemory, AUnitThatFailsMayBeSubmittedAgain) {
  const auto call = [](ScarceInbox& scarce) {
    const Submission submission{0, scarce.data, scarce.data};
    scarce.tensor_table.put_unit("", {float_spec("", 2), float_spec("own", 2)}, {submission, submission});
  };
  with_each_allocation_failing(call, [&call](ScarceInbox& scarce) {
    call(scarce);
    EXPECT_EQ(scarce.tensor_table.take().events.size(), 2u);
  });
}

TEST(InboxMemory, AProcessSetThatFailedMayBeAskedForAgain) {
  const auto call = [](ScarceInbox& scarce) { scarce.tensor_table.ask(spec_of(CollectiveKind::kAddSet, "", {0})); };
  with_each_allocation_failing(call, [&call](ScarceInbox& scarce) {
    call(scarce);
    EXPECT_EQ(scarce.tensor_table.take().events.size(), 1u);
  });
}

TEST(InboxMemory, TheEngineIsToldOfEveryTensorThatIsDeclared) {
  const auto call = [](ScarceInbox& scarce) { scarce.tensor_table.declare(float_spec("x", 2)); };
  with_each_allocation_failing(call, [&call](ScarceInbox& scarce) {
    call(scarce);
    EXPECT_EQ(scarce.tensor_table.take().declared.size(), 1u);
  });
}

TEST(InboxMemory, WhatEndsAWorkNeedsNone) {
  ScarceInbox scarce;
  TensorSpec unnamed = spec_of(CollectiveKind::kAllReduce, "", {2});
  std::vector<Key> keys;
  for (int i = 0; i < 100; ++i) {
    keys.push_back(scarce.tensor_table.put(unnamed, {0, scarce.data, scarce.data}).works.front()->key());
  }
  const FailurePtr failure = shut_down("over");
  good_allocations_here() = 0;
  scarce.tensor_table.settle(keys);
  const bool in_flight = scarce.tensor_table.close(failure);
  scarce.tensor_table.fail_all();
  good_allocations_here() = -1;
  EXPECT_TRUE(in_flight);
  EXPECT_THROW(scarce.first->outcome(), ShutDown);
}

// An error says that nothing was queued, so the same may be tried again; and what was queued is run.
TEST(InboxMemory, ASubmitThatFailsMayBeTriedAgainAndOneThatDoesNotIsRun) {
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
