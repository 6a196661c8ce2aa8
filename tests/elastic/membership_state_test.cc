#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/elastic/membership_driver.h"

namespace horo {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(MembershipState, TheStateOfEachMemberIsAWord) {
  MembershipDriver job(6, 3);
  const auto words = [&job] {
    std::vector<std::string> all;
    for (MemberId id = 0; id < 6; ++id) all.push_back(job.membership.state_of(id).word);
    return all;
  };
  EXPECT_THAT(words(), Each("starting"));
  EXPECT_FALSE(job.membership.state_of(0).can_answer);
  job.installed({0, 1, 2, 3, 4, 5}, 0);
  EXPECT_THAT(words(), Each("running"));
  job.stopped(5);
  job.died(1);
  job.sent(2, Leave{true, "no"});
  job.froze(0, 0);
  EXPECT_THAT(words(), ElementsAre("frozen", "died", "failed", "running", "running", "stopped"));
  EXPECT_TRUE(job.membership.state_of(0).can_answer);
  EXPECT_FALSE(job.membership.state_of(5).can_answer);
  job.froze(3, 0);
  job.froze(4, 0);
  job.after(MembershipConfig{}.silence_limit);
  EXPECT_THAT(words(), ElementsAre("installing", "died", "failed", "installing", "installing", "evicted"));
  job.installed({0, 3, 4}, 1);
  job.sent(4, Leave{});
  job.died(3);
  job.froze(0, 1);
  EXPECT_THAT(words(), ElementsAre("parked", "died", "failed", "died", "left", "evicted"));
  EXPECT_EQ(job.membership.state_of(1).detail, "signal 9 (SIGKILL)");
  EXPECT_EQ(job.membership.state_of(2).detail, "no");
  EXPECT_THAT(job.membership.state_of(5).detail, HasSubstr("it was stopped for "));
}

TEST(MembershipState, AReportIsNoEvidence) {
  MembershipDriver job(2, 1);
  job.installed({0, 1}, 0);
  job.sent(1, Report{7, 1, 2, 3, "layer"});
  EXPECT_THAT(job.story, IsEmpty());
  EXPECT_TRUE(job.inbox.empty());
  EXPECT_EQ(job.membership.epoch(), 0U);
}

}  // namespace
}  // namespace horo
