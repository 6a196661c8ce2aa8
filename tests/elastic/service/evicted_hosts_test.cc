// Hosts that the rendezvous has evicted, and refuses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/elastic/service/core_driver.h"

namespace horo {
namespace {

using namespace std::chrono_literals;
using testing::IsEmpty;
using testing::SizeIs;

class EvictedHost : public testing::Test, public CoreDriver {
 protected:
  EvictedHost() : CoreDriver({1, 2}) {}

  void begin() {
    join(0);
    join(1);
    for (const MemberId id : {0U, 1U, 2U}) installed(id, 0);
  }
  void stop(MemberId id) {
    report(1, MemberStopped{id});
    pass(11s, {0, 1});
    froze(0, core->job()->epoch);  // it waits
    ASSERT_TRUE(members()[id].is_evicted);
  }
  void miss() {
    pass(11s, {0});
    froze(0, 0);
  }
  std::string refusal() {
    try {
      join(1);
      return "";
    } catch (const HostEvicted& error) {
      return error.what();
    }
  }
};

TEST_F(EvictedHost, ASilentOneIsRefusedInAllCallsWithTheReason) {
  begin();
  woken.clear();
  miss();
  const std::uint64_t old = numbers[1];
  EXPECT_THROW(core->beat(old, now), HostEvicted);
  EXPECT_THROW(core->report(old, {MemberEnded{1, true, ""}}, now), HostEvicted);
  EXPECT_THROW(core->take_order(old), HostEvicted);
  EXPECT_THROW(core->host_of(old), HostEvicted);
  for (const std::uint64_t incarnation : {101U, 7U}) {
    EXPECT_THROW(core->check_incarnation(1, incarnation), HostEvicted);
    EXPECT_THROW(join(hello(1, incarnation)), HostEvicted);
  }
  EXPECT_EQ(
      refusal(),
      "host 1 was evicted: it did not answer for 10 s (host 1 is silent), and the other ranks went on without it");
  EXPECT_THAT(woken, testing::Contains(1U));  // its stream ends
  join(0);
}

TEST_F(EvictedHost, ItsMembersGoOutTogether) {
  begin();
  pass(11s, {0});
  const std::uint64_t before = store.writes;
  froze(0, 0);
  EXPECT_EQ(store.writes, before + 1);
}

TEST_F(EvictedHost, OneIsNotLockedOutBeforeItsLastRankIsEvicted) {
  begin();
  stop(1);
  join(1);
  EXPECT_FALSE(CoreDriver::all_of<JobChanged>(orders(1)).empty());
  froze(2, 0);
  for (const MemberId id : {0U, 2U}) installed(id, 1);
  report(1, MemberStopped{2});
  pass(5s, {0, 1});
  froze(0, 1);
  pass(6s, {0});
  EXPECT_EQ(refusal(),
            "host 1 was evicted with its last rank, 2: it was stopped for 10 s, and the other ranks went on "
            "without it");
}

TEST_F(EvictedHost, AHostOfWhichARankHasLeftHearsTheEndUnlessItIsSilent) {
  for (const bool is_silent : {false, true}) {
    store.record = {};
    start();
    begin();
    left(1);
    if (is_silent) {
      miss();
    } else {
      stop(2);
    }
    EXPECT_TRUE(members()[2].is_evicted);
    EXPECT_EQ(refusal().empty(), !is_silent);
  }
}

TEST_F(EvictedHost, AHostWithoutMembersMayBeSilent) {
  begin();
  left(1);
  died(2);
  pass(30s, {0});
  EXPECT_EQ(refusal(), "");
}

TEST_F(EvictedHost, TheHostThatRunsTheRendezvousIsNotLockedOut) {
  home = 1;
  start();
  begin();
  miss();
  EXPECT_TRUE(members()[1].is_evicted);
  EXPECT_EQ(refusal(), "");
  EXPECT_THAT(sent<Evicted>(1), SizeIs(2));
  pass(60s, {0});
  EXPECT_THAT(sent<Evicted>(1), IsEmpty());
}

TEST_F(EvictedHost, IsRefusedByTheNextRendezvousAndWelcomeInTheNextJob) {
  begin();
  miss();
  const std::string why = refusal();
  for (int restarts = 0; restarts < 2; ++restarts) {
    start();
    EXPECT_EQ(refusal(), why);
    EXPECT_NE(why, "");
  }
  join(0);
  died(0);
  EXPECT_EQ(refusal(), why);
  join(hello(1, 201));
  EXPECT_TRUE(core->evicted().empty());
  EXPECT_THROW(join(hello(1, 101)), HostRefused);
  join(hello(0, 200));
}

}  // namespace
}  // namespace horo
