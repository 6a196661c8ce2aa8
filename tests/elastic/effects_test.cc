// The effects of the stream in the decision of the next epoch.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/elastic/membership_driver.h"

namespace horo {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

const Effects kEffects = {{5, {std::byte{1}}}, {6, {std::byte{2}}}, {7, {std::byte{3}}}};

Frozen frozen_at(std::uint64_t applied, std::uint64_t forgotten, Effects effects) {
  return {0, {}, std::nullopt, "", applied, forgotten, std::move(effects)};
}

TEST(MembershipEffects, AViewHasTheEffectsThatAMemberLacks) {
  MembershipDriver job(3, 1);
  job.died(2);
  job.sent(0, frozen_at(7, 4, kEffects));
  job.sent(1, frozen_at(5, 0, {{5, {std::byte{1}}}}));
  ASSERT_THAT(job.got<View>(1), SizeIs(1));
  EXPECT_EQ(job.got<View>(1)[0].effects, (Effects{{6, {std::byte{2}}}, {7, {std::byte{3}}}}));
}

TEST(MembershipEffects, TheJobEndsIfAMemberLacksEffectsThatTheOthersHaveForgotten) {
  MembershipDriver job(3, 1);
  job.died(2);
  job.sent(0, frozen_at(7, 4, kEffects));
  job.sent(1, frozen_at(3, 0, {}));
  EXPECT_THAT(job.got<View>(1), IsEmpty());
  ASSERT_THAT(job.end, SizeIs(1));
  EXPECT_THAT(job.end[0], HasSubstr("the job ends: some of ranks 0, 1 have applied more failures"));
  for (const MemberId id : {0U, 1U}) {
    ASSERT_THAT(job.got<Evicted>(id), SizeIs(1));
    EXPECT_EQ(job.got<Evicted>(id)[0].reason, job.end[0]);
  }
}

}  // namespace
}  // namespace horo
