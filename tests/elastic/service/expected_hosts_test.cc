// Hosts that have called the rendezvous, and are lost before they take part.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/elastic/service/core_driver.h"

namespace horo {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

class ExpectedHost : public testing::Test, public CoreDriver {
 protected:
  void expect(std::uint32_t host, std::uint64_t incarnation) {
    core->check_incarnation(host, incarnation);
    core->expect_host(host, incarnation, now);
  }
};

TEST_F(ExpectedHost, ThatDoesNotRegisterIsEvictedAndNamed) {
  expect(1, 101);
  join(0);
  installed(0, 0);
  pass(14s, {0});
  EXPECT_EQ(members()[1].state.word, "starting");
  pass(2s, {0});
  EXPECT_EQ(members()[1].state.word, "silent");
  froze(0, 0);
  EXPECT_TRUE(members()[1].is_evicted);
  EXPECT_FALSE(members()[0].is_out);
  ASSERT_THAT(all_of<StoryTold>(orders(0)), testing::Not(IsEmpty()));
  EXPECT_THAT(core->evicted().at(1), HasSubstr("it has not begun within 15 s of its first call to the rendezvous"));
  start();
  EXPECT_THROW(core->check_incarnation(1, 7), HostEvicted);
}

TEST_F(ExpectedHost, IsExpectedByTheNextRendezvousToo) {
  expect(1, 101);
  join(0);
  start();
  join(0);
  froze(0, 0);
  pass(14s, {0});
  EXPECT_FALSE(members()[1].is_out);
  pass(3s, {0});
  EXPECT_TRUE(members()[1].is_evicted);
  EXPECT_FALSE(members()[0].is_out);
}

TEST_F(ExpectedHost, IsAlsoOneThatCallsARunningJob) {
  join(0);
  pass(60s, {0});
  EXPECT_FALSE(members()[1].is_out);  // it has never called
  expect(1, 101);
  froze(0, 0);
  pass(14s, {0});
  EXPECT_FALSE(members()[1].is_out);
  pass(2s, {0});
  EXPECT_TRUE(members()[1].is_evicted);
}

// Its longer lease is no sign that the rendezvous hears anybody.
TEST_F(ExpectedHost, IsNotOneThatIsHeardAfterTheOthers) {
  join(0);
  pass(2s);
  expect(1, 101);
  pass(12s);
  EXPECT_FALSE(members()[0].is_out);
}

TEST_F(ExpectedHost, ThatRegistersTakesPart) {
  expect(1, 101);
  join(0);
  pass(14s, {0});
  join(1);
  pass(40s, {0, 1});
  EXPECT_FALSE(members()[1].is_out);
}

TEST_F(ExpectedHost, ThatRegistersLateTakesPart) {
  expect(1, 101);
  join(0);
  pass(16s, {0});
  ASSERT_EQ(members()[1].state.word, "silent");
  join(1);
  EXPECT_EQ(members()[1].state.word, "starting");
  EXPECT_EQ(sent<Missed>(0).back().second, Missed{});
  froze(0, 0);
  EXPECT_FALSE(members()[1].is_out);
  froze(1, 0);
  EXPECT_THAT(sent<View>(1), SizeIs(1));
}

TEST_F(ExpectedHost, ThatIsRefusedLateIsNotLost) {
  expect(1, 101);
  join(0);
  pass(16s, {0});
  HostHello wrong = hello(1);
  wrong.spec.min_members = 2;
  EXPECT_THROW(join(wrong), HostRefused);
  froze(0, 0);
  EXPECT_FALSE(members()[1].is_out);
  join(1);
}

TEST_F(ExpectedHost, ThatIsStartedAnewHasItsTimeAgain) {
  expect(1, 7);
  join(0);
  pass(10s, {0});
  expect(1, 101);
  pass(10s, {0});
  join(1);
  EXPECT_FALSE(members()[1].is_out);
}

TEST_F(ExpectedHost, ThatIsStartedAnewLateHasItsTimeAgain) {
  expect(1, 7);
  join(0);
  pass(16s, {0});
  expect(1, 101);
  froze(0, 0);
  pass(10s, {0});
  EXPECT_FALSE(members()[1].is_out);
  pass(6s, {0});
  EXPECT_TRUE(members()[1].is_evicted);
}

// A person may start it with the right settings.
TEST_F(ExpectedHost, ThatIsRefusedIsNotLost) {
  expect(1, 101);
  join(0);
  HostHello wrong = hello(1);
  wrong.spec.min_members = 2;
  EXPECT_THROW(join(wrong), HostRefused);
  pass(60s, {0});
  EXPECT_FALSE(members()[1].is_out);
  join(1);
}

TEST_F(ExpectedHost, OfAnEarlierJobIsForgotten) {
  expect(1, 7);
  pass(60s);
  join(0);
  pass(60s, {0});
  EXPECT_FALSE(members()[1].is_out);
}

}  // namespace
}  // namespace horo
