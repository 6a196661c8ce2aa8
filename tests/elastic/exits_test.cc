#include "elastic/exits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace horo {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

const Leave kWithProcess{false, kDrained, "", true};

MemberEnded ended(MemberId id, int code) {
  return {id, code == 0, "exit code " + std::to_string(code)};
}

// What the decision takes, in words.
std::vector<std::string> words(const std::vector<HostEvent>& events) {
  std::vector<std::string> all;
  for (const HostEvent& event : events) {
    const auto* sent = std::get_if<MemberSent>(&event);
    const auto* leave = sent == nullptr ? nullptr : std::get_if<Leave>(&sent->message);
    if (leave != nullptr) {
      all.push_back((leave->failed ? "failed " : "left ") + leave->reason + leave->failure +
                    (leave->with_process ? " with its process" : ""));
    } else {
      all.emplace_back(std::holds_alternative<MemberEnded>(event) ? "ended" : "other");
    }
  }
  return all;
}

TEST(Exits, TheExitCodeTellsWhetherAMemberThatLeavesWithItsProcessHasFailed) {
  Exits exits;
  for (const MemberId id : {0U, 1U}) EXPECT_THAT(exits.on(MemberSent{id, kWithProcess}, {}), IsEmpty());
  EXPECT_THAT(words(exits.on(ended(0, 0), {})), ElementsAre("left drained", "ended"));
  EXPECT_THAT(words(exits.on(ended(1, 3), {})), ElementsAre("failed exit code 3exit code 3", "ended"));
  EXPECT_EQ(exits.next_deadline(), std::nullopt);
}

TEST(Exits, AProcessThatTakesLongHasLeftAndMayHaveFailedLater) {
  Exits exits;
  for (const MemberId id : {0U, 1U}) exits.on(MemberSent{id, kWithProcess}, {});
  EXPECT_EQ(exits.next_deadline(), TimePoint{} + Exits::kPatience);
  EXPECT_THAT(exits.pass_time(TimePoint{} + Exits::kPatience - Duration(1)), IsEmpty());
  EXPECT_THAT(words(exits.pass_time(TimePoint{} + Exits::kPatience)), ElementsAre("left drained", "left drained"));
  EXPECT_EQ(exits.next_deadline(), std::nullopt);
  EXPECT_THAT(words(exits.on(ended(0, 0), {})), ElementsAre("ended"));
  EXPECT_THAT(words(exits.on(ended(1, 3), {})), ElementsAre("failed exit code 3exit code 3", "ended"));
}

TEST(Exits, TheFirstLeaveOfAMemberCounts) {
  Exits exits;
  for (const Leave& first : {Leave{true, "ValueError"}, Leave{}}) {
    const MemberId id = first.failed ? 0 : 1;
    EXPECT_THAT(exits.on(MemberSent{id, first}, {}), ElementsAre(testing::_));
    EXPECT_THAT(exits.on(MemberSent{id, kWithProcess}, {}), IsEmpty());
    EXPECT_THAT(words(exits.on(ended(id, 1), {})), ElementsAre("ended"));
  }
}

TEST(Exits, AllElsePassesAsItIs) {
  Exits exits;
  EXPECT_THAT(words(exits.on(MemberStopped{0}, {})), ElementsAre("other"));
  EXPECT_THAT(words(exits.on(MemberSent{0, Installed{0}}, {})), ElementsAre("other"));
  EXPECT_THAT(words(exits.on(ended(0, 1), {})), ElementsAre("ended"));
}

}  // namespace
}  // namespace horo
