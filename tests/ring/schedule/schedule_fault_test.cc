// check_schedule() against faults: each fault, planted in a correct schedule, is found and named in the message.

#include <gtest/gtest.h>

#include <functional>
#include <stdexcept>

#include "ring/schedule/schedule_check.h"

namespace horo {
namespace {

using Kind = CollectiveKind;
using Schedules = std::vector<Schedule>;

struct Fault {
  const char* name;
  ScheduleMaker make;
  Kind kind;
  std::function<void(Schedules&)> plant;
  const char* message;
};

Schedules correct_schedules(const Fault& fault) {
  Shape shape;
  shape.kind = fault.kind;
  shape.size = 4;
  Schedules schedules;
  for (int member = 0; member < shape.size; ++member) schedules.push_back(fault.make(shape, member));
  return schedules;
}

std::string check(const Fault& fault, const Schedules& schedules) {
  Shape shape;
  shape.kind = fault.kind;
  shape.size = 4;
  try {
    check_schedule(shape, schedules);
    return "";
  } catch (const std::invalid_argument& found) {
    return found.what();
  }
}

constexpr int kIn = Schedule::kIn;
constexpr int kOut = Schedule::kOut;

std::vector<Fault> faults_of_messages() {
  return {
      {"a send is missing", direct_all_reduce, Kind::kAllReduce, [](auto& s) { s[2].rounds[0].send.pop_back(); },
       "which sends none"},
      {"a receive is missing", direct_all_reduce, Kind::kAllReduce, [](auto& s) { s[2].rounds[1].receive.pop_back(); },
       "does not receive what member"},
      {"a message goes to another member", direct_all_reduce, Kind::kAllReduce,
       [](auto& s) { s[1].rounds[1].send[0].peer = 0; }, "member"},
      {"a message goes to its sender", direct_all_reduce, Kind::kAllReduce,
       [](auto& s) { s[1].rounds[1].send[0].peer = 1; }, "sends to member 1"},
      {"a message goes to a member that does not exist", direct_all_reduce, Kind::kAllReduce,
       [](auto& s) { s[1].rounds[1].send[0].peer = 4; }, "sends to member 4"},
      {"another chunk is sent", direct_all_reduce, Kind::kAllReduce,
       [](auto& s) { s[0].rounds[0].send[0].part.first = 3; }, "which sends chunk 3"},
      {"a run is one chunk too long", halving_doubling_all_reduce, Kind::kAllReduce,
       [](auto& s) { s[0].rounds[0].send[0].part.count = 1; }, "which sends chunk"},
      {"a message is sent twice", ring_all_reduce_schedule, Kind::kAllReduce,
       [](auto& s) { s[3].rounds[0].send.push_back(s[3].rounds[0].send[0]); }, "does not receive what member 3"},
      {"a message is sent one round late", ring_all_reduce_schedule, Kind::kAllReduce,
       [](auto& s) { std::swap(s[1].rounds[3], s[1].rounds[4]); }, "member"},
      {"two messages are exchanged", log_step_all_to_all, Kind::kAllToAll,
       [](auto& s) { std::swap(s[0].rounds[0].send[0], s[0].rounds[0].send[1]); }, "which sends chunk"},
      {"an empty run is sent", direct_all_reduce, Kind::kAllReduce,
       [](auto& s) { s[0].rounds[0].send[0].part.count = 0; }, "empty run"},
  };
}

std::vector<Fault> faults_of_places() {
  return {
      {"a chunk that does not exist", direct_all_reduce, Kind::kAllReduce,
       [](auto& s) { s[0].rounds[0].send[0].part.first = 4; }, "there is no chunk 4"},
      {"an area that does not exist", direct_all_reduce, Kind::kAllReduce,
       [](auto& s) { s[0].rounds[0].receive[0].part.area = 9; }, "there is no area 9"},
      {"a chunk is read before it is written", tree_broadcast, Kind::kBroadcast,
       [](auto& s) { s[0].rounds[0].send[0].part.area = kOut; }, "has not been written"},
      {"the input is written to", direct_all_gather, Kind::kAllGather,
       [](auto& s) { s[0].rounds[0].receive[0].part.area = kIn; }, "writes to its input"},
      {"two receives into one place", direct_all_reduce, Kind::kAllReduce,
       [](auto& s) { s[0].rounds[0].receive[1].part.area = s[0].rounds[0].receive[0].part.area; }, "in use"},
      {"a receive overwrites a chunk that is being sent", ring_all_reduce_schedule, Kind::kAllReduce,
       [](auto& s) { s[0].rounds[1].receive[0].part.area = s[0].rounds[1].send[0].part.area; },
       "while it sends from there"},
      {"an area is too small", halving_doubling_all_reduce, Kind::kAllReduce,
       [](auto& s) {
         s[0].scratch[0] = {1, true, 0};
       },
       "no room"},
      {"a scratch area is missing", log_step_all_to_all, Kind::kAllToAll, [](auto& s) { s[0].scratch.clear(); },
       "there is no area"},
  };
}

std::vector<Fault> faults_of_arithmetic() {
  return {
      {"a contribution is left out", direct_all_reduce, Kind::kAllReduce,
       [](auto& s) { s[1].rounds[0].combine[0].tree = {kIn}; }, "lacks member 0's contribution"},
      {"a contribution counts twice", one_shot_all_reduce, Kind::kAllReduce,
       [](auto& s) {
         auto& tree = s[0].rounds[0].combine[0].tree;
         tree.push_back(kIn);
         tree.push_back(Combine::kJoin);
       },
       "member 0's contribution to chunk 0 twice"},
      {"left and right are exchanged", direct_all_reduce, Kind::kAllReduce,
       [](auto& s) {
         auto& tree = s[1].rounds[0].combine[0].tree;
         std::swap(tree[0], tree[1]);
       },
       "not the canonical order"},
      {"members sum in different orders", one_shot_all_reduce, Kind::kAllReduce,
       [](auto& s) {
         auto& tree = s[3].rounds[0].combine[0].tree;
         std::swap(tree[0], tree[1]);
       },
       "another sum of chunk 0"},
      {"a ring is declared canonical", ring_all_reduce_schedule, Kind::kAllReduce,
       [](auto& s) {
         for (Schedule& one : s) one.order = Order::kCanonical;
       },
       "not the canonical order"},
      {"a sum is scaled twice", tree_all_reduce, Kind::kAllReduce,
       [](auto& s) {
         s[0].rounds[1].combine.push_back({{Schedule::kFirstScratch, 0}, {kOut}});
       },
       "which is a final result"},
      {"a partial sum is written to the output", tree_reduce, Kind::kReduce,
       [](auto& s) { s[0].rounds[1].receive[0].part.area = kOut; }, "partial result"},
      {"a partial sum is written to an area for elements", ring_all_reduce_schedule, Kind::kAllReduce,
       [](auto& s) { s[0].scratch[1].accumulates = false; }, "does not hold values of this form"},
      {"a join without operands", direct_all_reduce, Kind::kAllReduce,
       [](auto& s) { s[1].rounds[0].combine[0].tree = {Combine::kJoin}; }, "joins fewer than two values"},
      {"two values are left on the stack", direct_all_reduce, Kind::kAllReduce,
       [](auto& s) { s[1].rounds[0].combine[0].tree.pop_back(); }, "leaves 2 values"},
      {"an all_gather adds", direct_all_gather, Kind::kAllGather,
       [](auto& s) {
         s[0].rounds[0].combine[0].tree = {kIn, kIn, Combine::kJoin};
       },
       "combines chunks in all_gather"},
  };
}

std::vector<Fault> faults_of_results() {
  return {
      {"an output is missing", direct_all_gather, Kind::kAllGather, [](auto& s) { s[2].rounds[0].combine.clear(); },
       "ends without chunk 2"},
      {"a chunk is written to the wrong output", direct_gather, Kind::kGather,
       [](auto& s) {
         s[1].rounds[0].combine.push_back({{kOut, 1}, {kIn}});
       },
       "which does not have that chunk"},
      {"the input is overwritten before it is sent", direct_all_reduce, Kind::kAllReduce,
       [](auto& s) {
         s[0].rounds[1].send.push_back({1, {kIn, 0}});
       },
       "which was overwritten"},
      {"a round is missing", tree_broadcast, Kind::kBroadcast, [](auto& s) { s[3].rounds.pop_back(); }, "rounds"},
      {"a member has a schedule of another name", direct_all_reduce, Kind::kAllReduce,
       [](auto& s) { s[3].name = "ring"; }, "differs in name or order"},
      {"a member has the schedule of another member", direct_all_reduce, Kind::kAllReduce, [](auto& s) { s[3] = s[2]; },
       "written for member 2"},
  };
}

std::vector<Fault> faults() {
  std::vector<Fault> faults;
  for (const auto& some : {faults_of_messages(), faults_of_places(), faults_of_arithmetic(), faults_of_results()}) {
    faults.insert(faults.end(), some.begin(), some.end());
  }
  return faults;
}

TEST(ScheduleFaults, SchedulesWithoutFaultsAreAccepted) {
  for (const Fault& fault : faults()) EXPECT_EQ(check(fault, correct_schedules(fault)), "") << fault.name;
}

TEST(ScheduleFaults, EachOfAtLeastThirtyIsFoundAndNamed) {
  EXPECT_GE(faults().size(), 30u);
  for (const Fault& fault : faults()) {
    Schedules schedules = correct_schedules(fault);
    fault.plant(schedules);
    EXPECT_NE(check(fault, schedules).find(fault.message), std::string::npos)
        << fault.name << ": \"" << check(fault, schedules) << "\", expected \"" << fault.message << "\"";
  }
}

}  // namespace
}  // namespace horo
