#include "elastic/service/rendezvous_core.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/elastic/service/core_driver.h"

namespace horo {
namespace {

using namespace std::chrono_literals;
using testing::IsEmpty;
using testing::SizeIs;

// ---- Registration.

TEST(RendezvousCore, TheFirstHostBeginsTheJob) {
  CoreDriver job;
  EXPECT_FALSE(job.core->job().has_value());
  const Registration registration = job.join(0);
  EXPECT_EQ(registration.term, 1U);
  EXPECT_EQ(registration.lease, 10s);
  ASSERT_TRUE(job.core->job().has_value());
  EXPECT_EQ(job.members().size(), 2U);
}

TEST(RendezvousCore, AHostWithOtherSettingsIsRefused) {
  CoreDriver job;
  job.join(0);
  for (const auto& change : std::vector<std::function<void(JobSpec&)>>{
           [](JobSpec& spec) { spec.min_members = 2; }, [](JobSpec& spec) { spec.silence_limit += 1ms; },
           [](JobSpec& spec) { spec.park_timeout += 1ms; }, [](JobSpec& spec) { spec.ranks_by_host.push_back(1); }}) {
    HostHello hello = job.hello(1);
    change(hello.spec);
    EXPECT_THROW(job.join(hello), HostRefused);
  }
  job.join(1);
}

TEST(RendezvousCore, AHelloThatDoesNotFitItsSpecBeginsNoJob) {
  CoreDriver job({2, 1});
  HostHello unknown = job.hello(1);
  unknown.host = 2;
  HostHello foreign = job.hello(0);
  foreign.past.members[1].id = 2;
  HostHello mixed = job.hello(0);
  mixed.past.members[0].events = {MemberStopped{2}};
  HostHello less = job.hello(0);
  less.past.members.pop_back();
  HostHello later = job.hello(0);
  later.past.members[0].viewed = 1;
  for (const HostHello& hello : {unknown, foreign, mixed, less, later}) {
    EXPECT_THROW(job.join(hello), HostRefused);
    EXPECT_FALSE(job.core->job().has_value());
  }
  EXPECT_EQ(job.store.writes, 0U);
}

TEST(RendezvousCore, AnotherStartOfTheSameHostIsRefused) {
  CoreDriver job;
  job.join(0);
  job.join(1);
  EXPECT_THROW(job.core->check_incarnation(0, 7), HostRefused);
  EXPECT_THROW(job.join(job.hello(0, 7)), HostRefused);
  EXPECT_NO_THROW(job.core->check_incarnation(0, 100));
  job.report(0, MemberSent{0, Installed{0}});
}

TEST(RendezvousCore, ARegistrationReplacesTheOneBefore) {
  CoreDriver job;
  const Registration old = job.join(0);
  const Registration now = job.join(0);
  EXPECT_NE(old.number, now.number);
  EXPECT_THROW(job.core->beat(old.number, job.now), NotRegistered);
  EXPECT_THROW(job.core->report(old.number, {MemberEnded{0, false, "x"}}, job.now), NotRegistered);
  EXPECT_THROW(job.core->take_order(old.number), NotRegistered);
  EXPECT_THROW(job.core->host_of(0), NotRegistered);
  EXPECT_EQ(job.core->host_of(now.number), 0U);
  EXPECT_FALSE(job.members()[0].is_out);
}

TEST(RendezvousCore, AReportOfAnotherHostsMemberChangesNothing) {
  CoreDriver job;
  job.join(0);
  job.join(1);
  const std::vector<HostEvent> events = {MemberEnded{0, false, "x"}, MemberEnded{1, false, "x"}};
  EXPECT_THROW(job.core->report(job.numbers[0], events, job.now), HostRefused);
  EXPECT_THROW(job.core->report(job.numbers[0], {MemberStopped{2}}, job.now), HostRefused);
  EXPECT_FALSE(job.members()[0].is_out);
  EXPECT_FALSE(job.members()[1].is_out);
}

// ---- Orders.

TEST(RendezvousCore, OrdersGoToTheHostOfTheirMember) {
  CoreDriver job({2, 1});
  job.join(0);
  job.join(1);
  for (const MemberId id : {0U, 1U, 2U}) job.installed(id, 0);
  job.died(1);
  EXPECT_THAT(job.woken, testing::Contains(1U));
  const auto at_0 = job.sent<Freeze>(0);
  ASSERT_THAT(at_0, SizeIs(1));
  EXPECT_EQ(at_0[0].first, 0U);
  EXPECT_THAT(job.sent<Freeze>(1), SizeIs(1));
  job.froze(0, 0);
  job.froze(2, 0);
  const auto view_0 = job.sent<View>(0), view_1 = job.sent<View>(1);
  ASSERT_THAT(view_0, SizeIs(1));
  ASSERT_THAT(view_1, SizeIs(1));
  EXPECT_EQ(view_0[0].second, view_1[0].second);
  EXPECT_NE(view_0[0].second.secret, JobKey{});
}

TEST(RendezvousCore, AHostThatIsNotThereYetIsNotSilent) {
  CoreDriver job;
  job.join(0);
  job.died(0);
  job.pass(30s);
  EXPECT_FALSE(job.members()[1].is_out);
  job.join(1);
  EXPECT_THAT(job.sent<Freeze>(1), SizeIs(1));
}

TEST(RendezvousCore, EachLineOfTheStoryIsToldOncePerHostAndAgainFromWhatItHas) {
  CoreDriver job;
  job.join(0);
  job.join(1);
  job.installed(0, 0);
  job.report(0, MemberStopped{0});
  job.report(0, MemberContinued{0});
  for (const std::uint32_t host : {0U, 1U}) EXPECT_THAT(CoreDriver::all_of<StoryTold>(job.orders(host)), SizeIs(2));
  EXPECT_THAT(job.orders(0), IsEmpty());
  job.join(0);
  const auto lines = CoreDriver::all_of<StoryTold>(job.orders(0));
  ASSERT_THAT(lines, SizeIs(2));
  EXPECT_LT(lines[0].number, lines[1].number);
  HostHello hello = job.hello(0);
  hello.past.told = lines[0].number;
  job.join(hello);
  EXPECT_THAT(CoreDriver::all_of<StoryTold>(job.orders(0)), SizeIs(1));
}

TEST(RendezvousCore, AHostThatTakesNoOrdersHasToRegisterAgain) {
  CoreDriver job;
  job.join(0);
  job.join(1);
  for (int i = 0; i < 3'000; ++i) {
    job.report(0, MemberStopped{0});
    job.report(0, MemberContinued{0});
    job.orders(0);
  }
  EXPECT_THROW(job.core->take_order(job.numbers[1]), NotRegistered);
  job.join(1);
  EXPECT_FALSE(CoreDriver::all_of<JobChanged>(job.orders(1)).empty());
}

// ---- What many hosts are told.

TEST(RendezvousCore, MembersOfAHostThatGetTheSameMessageAreNamedByOneOrder) {
  CoreDriver job({3, 2});
  job.join(0);
  job.join(1);
  job.orders(0);
  job.died(4);
  const auto orders_0 = CoreDriver::all_of<SendToMembers>(job.orders(0));
  const auto orders_1 = CoreDriver::all_of<SendToMembers>(job.orders(1));
  ASSERT_EQ(orders_0.size(), 1U);
  ASSERT_EQ(orders_1.size(), 1U);
  EXPECT_EQ(orders_0[0].ids, (std::vector<MemberId>{0, 1, 2}));
  EXPECT_EQ(orders_1[0].ids, (std::vector<MemberId>{3}));
  EXPECT_EQ(orders_0[0].message, orders_1[0].message) << "one object";
  for (const MemberId id : {0U, 1U, 2U, 3U}) job.froze(id, 0);
  const auto view_0 = CoreDriver::all_of<SendToMembers>(job.orders(0));
  const auto view_1 = CoreDriver::all_of<SendToMembers>(job.orders(1));
  ASSERT_EQ(view_0.size(), 1U);
  ASSERT_EQ(view_1.size(), 1U);
  EXPECT_EQ(view_0[0].message, view_1[0].message) << "one object";
}

TEST(RendezvousCore, AHostThatIsSlowIsToldTheStateOfTheJobOnce) {
  CoreDriver job({2, 2});
  job.join(0);
  job.join(1);
  JobView view = first_job_view(4);
  const auto take = [&] {
    const auto changes = CoreDriver::all_of<JobChanged>(job.orders(1));
    for (const JobChanged& one : changes) apply(*one.change, view);
    EXPECT_EQ(view, job.core->job().value());
    return changes;
  };
  EXPECT_EQ(take().size(), 1U);
  for (const MemberId id : {0U, 1U, 2U, 3U}) job.installed(id, 0);
  job.died(0);
  EXPECT_EQ(take().size(), 1U);
  EXPECT_EQ(take().size(), 0U);
  for (const MemberId id : {1U, 2U, 3U}) job.froze(id, 0);
  const auto changes = take();
  ASSERT_EQ(changes.size(), 1U);
  EXPECT_FALSE(changes[0].change->is_from_first);
  job.join(1);
  const auto again = take();
  ASSERT_EQ(again.size(), 1U);
  EXPECT_TRUE(again[0].change->is_from_first);
}

TEST(RendezvousCore, ManyHostsAreToldTheStateOfTheJobFromTimeToTime) {
  CoreDriver job(std::vector<std::uint32_t>(50, 1));
  for (std::uint32_t host = 0; host < 50; ++host) job.join(host);
  job.pass(1s);
  job.orders(0);
  const std::uint64_t writes = job.store.writes;
  job.report(1, MemberSent{1, Leave{false, ""}});
  EXPECT_EQ(CoreDriver::all_of<JobChanged>(job.orders(0)).size(), 1U);
  for (const std::uint32_t host : {2U, 3U}) job.report(host, MemberSent{host, Leave{false, ""}});
  EXPECT_EQ(CoreDriver::all_of<JobChanged>(job.orders(0)).size(), 0U);
  EXPECT_LE(job.core->next_deadline().value(), job.now + 50ms);
  job.now += 50ms;
  job.core->pass_time(job.now);
  const auto changes = CoreDriver::all_of<JobChanged>(job.orders(0));
  ASSERT_EQ(changes.size(), 1U);
  EXPECT_EQ(changes[0].change->members.size(), 2U);
  EXPECT_EQ(job.store.writes, writes + 2) << "stored before it is told, and not more often";
}

// ---- Leases.

// The network of the rendezvous has failed: nothing follows, and when it is back, all go on, whatever has happened.
TEST(RendezvousCore, ACutOfItsNetworkIsNoSilenceOfTheHosts) {
  for (const bool is_one_frozen : {false, true}) {
    CoreDriver job({1, 1, 1});
    for (std::uint32_t host = 0; host < 3; ++host) job.join(host);
    for (const MemberId id : {0U, 1U, 2U}) job.installed(id, 0);
    if (is_one_frozen) job.froze(0, 0);
    job.pass(2 * (job.spec.silence_limit + job.spec.park_timeout));
    job.pass(job.spec.silence_limit / 2, {0});
    for (const MemberView& member : job.members()) EXPECT_FALSE(member.is_out);
    EXPECT_THAT(job.core->evicted(), IsEmpty());
    job.pass(500ms, {0, 1, 2});
    if (!is_one_frozen) continue;
    for (const MemberId id : {1U, 2U}) job.froze(id, 0);
    EXPECT_THAT(job.sent<View>(2), SizeIs(1));
  }
}

TEST(RendezvousCore, ASilentHostIsKeptWhileNoMemberWaitsForIt) {
  CoreDriver job({1, 2});
  job.join(0);
  job.join(1);
  for (const MemberId id : {0U, 1U, 2U}) job.installed(id, 0);
  job.pass(9'500ms, {0});
  EXPECT_EQ(job.members()[1].state.word, "running");
  job.pass(1s, {0});
  for (const MemberId id : {1U, 2U}) EXPECT_EQ(job.members()[id].state.word, "silent");
  EXPECT_THAT(job.sent<Missed>(0), testing::ElementsAre(std::pair(MemberId{0}, Missed{{1, 2}})));
  job.pass(1h, {0});
  for (const MemberView& member : job.members()) EXPECT_FALSE(member.is_out);
  job.pass(1s, {0, 1});
  EXPECT_EQ(job.members()[1].state.word, "running");
  EXPECT_THAT(job.sent<Missed>(0), testing::ElementsAre(std::pair(MemberId{0}, Missed{})));
}

// The host registers again before it has taken the order, or with the next rendezvous.
TEST(RendezvousCore, ThatNoMemberIsMissedAnyMoreIsToldAgain) {
  for (const bool is_restarted : {false, true}) {
    CoreDriver job;
    for (const std::uint32_t host : {0U, 1U}) job.join(host);
    for (const MemberId id : {0U, 1U}) job.installed(id, 0);
    job.pass(11s, {0});
    EXPECT_THAT(job.sent<Missed>(0), testing::ElementsAre(std::pair(MemberId{0}, Missed{{1}})));
    job.pass(1s, {0, 1});
    if (is_restarted) job.start();
    for (const std::uint32_t host : {0U, 1U}) job.join(host);
    EXPECT_THAT(job.sent<Missed>(0), testing::ElementsAre(std::pair(MemberId{0}, Missed{})));
  }
}

TEST(RendezvousCore, ASilentHostLosesItsMembersWhenOneWaitsForThem) {
  CoreDriver job({1, 2});
  job.join(0);
  job.join(1);
  for (const MemberId id : {0U, 1U, 2U}) job.installed(id, 0);
  job.pass(11s, {0});
  job.froze(0, 0);
  EXPECT_FALSE(job.members()[0].is_out);
  for (const MemberId id : {1U, 2U}) EXPECT_TRUE(job.members()[id].is_evicted);
}

TEST(RendezvousCore, TheLastHostWithMembersIsNeverGivenUp) {
  CoreDriver job;
  job.join(0);
  job.join(1);
  for (const MemberId id : {0U, 1U}) job.installed(id, 0);
  job.left(0);
  job.pass(1h, {0});
  EXPECT_FALSE(job.members()[1].is_out);
  job.pass(1s, {0, 1});
  job.left(1);
  EXPECT_TRUE(job.members()[1].is_out);
}

// A host that comes back finds the job, until another one has begun in its place.
TEST(RendezvousCore, AnotherJobMayFollowOneOfWhichNoHostIsHeardForLong) {
  CoreDriver job;
  job.join(0);
  job.join(1);
  job.pass(abandoned_after(job.spec) - 1s);
  EXPECT_THROW(job.join(job.hello(0, 200)), HostRefused);
  job.pass(2s);
  job.core->check_incarnation(1, 101);
  job.join(job.hello(0, 200));
  try {
    job.join(1);
    ADD_FAILURE() << "the host of the job before takes part";
  } catch (const HostRefused& error) {
    EXPECT_STREQ(error.what(), "the job of host 1 is over, and another one has begun");
  }
}

TEST(RendezvousCore, BeatsAndReportsExtendALease) {
  CoreDriver job;
  job.join(0);
  job.join(1);
  for (int i = 0; i < 5; ++i) {
    job.pass(8s, {0});
    job.installed(1, 0);
  }
  EXPECT_FALSE(job.members()[1].is_out);
}

TEST(RendezvousCore, NobodyIsEvictedForTheTimeInWhichTheRendezvousDidNotRun) {
  CoreDriver job;
  job.join(0);
  job.join(1);
  job.installed(0, 0);
  job.installed(1, 0);
  job.report(0, MemberStopped{0});
  job.pass(5s, {0, 1});
  job.now += 1min;
  job.core->beat(job.numbers[0], job.now);
  job.core->pass_time(job.now);
  for (const MemberView& member : job.members()) EXPECT_FALSE(member.is_out);
  job.report(0, MemberContinued{0});
  job.froze(0, 0);
  job.pass(9s, {0});
  for (const MemberView& member : job.members()) EXPECT_FALSE(member.is_out);
  job.pass(2s, {0});
  EXPECT_TRUE(job.members()[1].is_evicted);
}

// The host may have come back meanwhile.
TEST(RendezvousCore, AHostThatWasSilentBeforeAPauseHasTheWholeTimeAgain) {
  for (const std::chrono::milliseconds limit : {1s, 10s}) {
    CoreDriver job;
    job.spec.silence_limit = limit;
    for (const std::uint32_t host : {0U, 1U}) job.join(host);
    for (const MemberId id : {0U, 1U}) job.installed(id, 0);
    job.pass(limit + 1s, {0});
    ASSERT_EQ(job.members()[1].state.word, "silent");
    job.now += 1min;
    job.froze(0, 0);
    job.pass(std::max(limit, kLeastGrace) - 500ms, {0});
    EXPECT_FALSE(job.members()[1].is_out);
    job.pass(1s, {0});
    EXPECT_TRUE(job.members()[1].is_evicted);
  }
}

TEST(RendezvousCore, AMemberThatContinuedWhileItsHostWasAwayIsNotStopped) {
  CoreDriver job;
  job.join(0);
  job.join(1);
  job.installed(0, 0);
  job.installed(1, 0);
  job.report(0, MemberStopped{0});
  HostHello hello = job.hello(0);
  hello.past.members[0].events = {MemberSent{0, Installed{0}}};
  job.join(hello);
  EXPECT_EQ(job.members()[0].state.word, "running");
}

TEST(RendezvousCore, ThereIsNoDeadlineBeforeAJobAndAfterIt) {
  CoreDriver job;
  EXPECT_EQ(job.core->next_deadline(), std::nullopt);
  job.join(0);
  job.join(1);
  EXPECT_NE(job.core->next_deadline(), std::nullopt);
  job.died(0);
  job.died(1);
  EXPECT_EQ(job.core->next_deadline(), std::nullopt);
}

}  // namespace
}  // namespace horo
