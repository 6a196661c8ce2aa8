// The proof of schedules, proven: each of these faults, planted in a right schedule, is found and named.

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
  const char* said;
};

Schedules right(const Fault& fault) {
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
       "who sends none"},
      {"a receive is missing", direct_all_reduce, Kind::kAllReduce, [](auto& s) { s[2].rounds[1].receive.pop_back(); },
       "does not receive what member"},
      {"a message goes to another member", direct_all_reduce, Kind::kAllReduce,
       [](auto& s) { s[1].rounds[1].send[0].peer = 0; }, "member"},
      {"a message goes to its sender", direct_all_reduce, Kind::kAllReduce,
       [](auto& s) { s[1].rounds[1].send[0].peer = 1; }, "sends to member 1"},
      {"a message goes to nobody", direct_all_reduce, Kind::kAllReduce,
       [](auto& s) { s[1].rounds[1].send[0].peer = 4; }, "sends to member 4"},
      {"another chunk is sent", direct_all_reduce, Kind::kAllReduce,
       [](auto& s) { s[0].rounds[0].send[0].part.first = 3; }, "who sends chunk 3"},
      {"a run is one chunk too long", halving_doubling_all_reduce, Kind::kAllReduce,
       [](auto& s) { s[0].rounds[0].send[0].part.count = 1; }, "who sends chunk"},
      {"a message is sent twice", ring_all_reduce_schedule, Kind::kAllReduce,
       [](auto& s) { s[3].rounds[0].send.push_back(s[3].rounds[0].send[0]); }, "does not receive what member 3"},
      {"a message comes a round late", ring_all_reduce_schedule, Kind::kAllReduce,
       [](auto& s) { std::swap(s[1].rounds[3], s[1].rounds[4]); }, "member"},
      {"two messages change places", log_step_all_to_all, Kind::kAllToAll,
       [](auto& s) { std::swap(s[0].rounds[0].send[0], s[0].rounds[0].send[1]); }, "who sends chunk"},
      {"an empty run is sent", direct_all_reduce, Kind::kAllReduce,
       [](auto& s) { s[0].rounds[0].send[0].part.count = 0; }, "empty run"},
  };
}

std::vector<Fault> faults_of_places() {
  return {
      {"a chunk that is not there", direct_all_reduce, Kind::kAllReduce,
       [](auto& s) { s[0].rounds[0].send[0].part.first = 4; }, "there is no chunk 4"},
      {"an area that is not there", direct_all_reduce, Kind::kAllReduce,
       [](auto& s) { s[0].rounds[0].receive[0].part.area = 9; }, "there is no area 9"},
      {"something is read before it is written", tree_broadcast, Kind::kBroadcast,
       [](auto& s) { s[0].rounds[0].send[0].part.area = kOut; }, "holds nothing"},
      {"the input is written to", direct_all_gather, Kind::kAllGather,
       [](auto& s) { s[0].rounds[0].receive[0].part.area = kIn; }, "writes to its input"},
      {"two receives into one place", direct_all_reduce, Kind::kAllReduce,
       [](auto& s) { s[0].rounds[0].receive[1].part.area = s[0].rounds[0].receive[0].part.area; }, "in use"},
      {"a receive over what is being sent", ring_all_reduce_schedule, Kind::kAllReduce,
       [](auto& s) { s[0].rounds[1].receive[0].part.area = s[0].rounds[1].send[0].part.area; },
       "while it sends from there"},
      {"no room in an area", halving_doubling_all_reduce, Kind::kAllReduce,
       [](auto& s) {
         s[0].scratch[0] = {1, true, 0};
       },
       "no room"},
      {"not enough room in a floating area", log_step_all_to_all, Kind::kAllToAll,
       [](auto& s) { s[0].scratch.clear(); }, "there is no area"},
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
      {"left and right change places", direct_all_reduce, Kind::kAllReduce,
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
      {"a ring that claims to be canonical", ring_all_reduce_schedule, Kind::kAllReduce,
       [](auto& s) {
         for (Schedule& one : s) one.order = Order::kCanonical;
       },
       "not the canonical order"},
      {"a sum is scaled twice", tree_all_reduce, Kind::kAllReduce,
       [](auto& s) {
         s[0].rounds[1].combine.push_back({{Schedule::kFirstScratch, 0}, {kOut}});
       },
       "which is finished"},
      {"an unfinished sum is delivered", tree_reduce, Kind::kReduce,
       [](auto& s) { s[0].rounds[1].receive[0].part.area = kOut; }, "unfinished"},
      {"a partial sum lies where none may", ring_all_reduce_schedule, Kind::kAllReduce,
       [](auto& s) { s[0].scratch[1].accumulates = false; }, "does not hold values of this form"},
      {"a join without operands", direct_all_reduce, Kind::kAllReduce,
       [](auto& s) { s[1].rounds[0].combine[0].tree = {Combine::kJoin}; }, "joins what is not there"},
      {"values are left over", direct_all_reduce, Kind::kAllReduce,
       [](auto& s) { s[1].rounds[0].combine[0].tree.pop_back(); }, "leaves 2 values"},
      {"a collective that moves adds", direct_all_gather, Kind::kAllGather,
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
      {"an output where none belongs", direct_gather, Kind::kGather,
       [](auto& s) {
         s[1].rounds[0].combine.push_back({{kOut, 1}, {kIn}});
       },
       "where it has no place"},
      {"the input is overwritten before it is sent", direct_all_reduce, Kind::kAllReduce,
       [](auto& s) {
         s[0].rounds[1].send.push_back({1, {kIn, 0}});
       },
       "which was overwritten"},
      {"a round is missing", tree_broadcast, Kind::kBroadcast, [](auto& s) { s[3].rounds.pop_back(); }, "rounds"},
      {"a member has another schedule", direct_all_reduce, Kind::kAllReduce, [](auto& s) { s[3].name = "ring"; },
       "another schedule"},
      {"a schedule of another member", direct_all_reduce, Kind::kAllReduce, [](auto& s) { s[3] = s[2]; },
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

TEST(ScheduleFaults, TheSchedulesAreRightBeforeTheFaultsArePlanted) {
  for (const Fault& fault : faults()) EXPECT_EQ(check(fault, right(fault)), "") << fault.name;
}

TEST(ScheduleFaults, EachOfThirtyAndMoreIsFoundAndNamed) {
  EXPECT_GE(faults().size(), 30u);
  for (const Fault& fault : faults()) {
    Schedules schedules = right(fault);
    fault.plant(schedules);
    EXPECT_NE(check(fault, schedules).find(fault.said), std::string::npos)
        << fault.name << ": \"" << check(fault, schedules) << "\", expected \"" << fault.said << "\"";
  }
}

}  // namespace
}  // namespace horo
