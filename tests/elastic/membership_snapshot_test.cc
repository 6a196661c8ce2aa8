// A decision maker that takes the place of another one, at each point of a small job.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <optional>

#include "horo/base/error.h"
#include "tests/elastic/membership_driver.h"

namespace horo {
namespace {

using namespace std::chrono_literals;
using testing::IsEmpty;
using testing::SizeIs;
using Presence = MembershipSnapshot::Presence;

constexpr MemberId kMembers = 4;

// A job of four members that needs two, the events of which are kept as a guard keeps them.
class Job {
 public:
  Job() : config_(config()), membership_(std::make_unique<JobMembership>(config_)) {}

  void take(const MembershipEvent& event) { carry_out(membership_->on(event, now)); }
  void froze(MemberId id, std::uint32_t epoch) {
    note(id, MemberSent{id, Frozen{epoch, {{0, 10 + epoch}}, std::nullopt, "it froze"}});
  }
  void installed(MemberId id, std::uint32_t epoch) { note(id, MemberSent{id, Installed{epoch}}); }
  void died(MemberId id) { note(id, MemberEnded{id, false, "signal 9 (SIGKILL)"}); }
  void note(MemberId id, const MembershipEvent& event) {
    past[id].push_back(event);
    take(event);
  }
  void restart() {
    membership_ = std::make_unique<JobMembership>(config_, membership_->snapshot(), now + 10s);
    inbox.clear();
  }
  // The hosts, each with two members, tell what they know.
  void tell(const std::vector<std::vector<MemberId>>& hosts) {
    for (const std::vector<MemberId>& host : hosts) {
      std::vector<JobMembership::Touched> touched;
      for (const MemberId id : host) {
        for (const MembershipEvent& event : past[id]) take(event);
        touched.push_back({id, viewed[id]});
      }
      carry_out(membership_->tell_again(touched, now));
    }
  }
  template <class Message>
  std::vector<Message> got(MemberId id) {
    std::vector<Message> found;
    for (const GuardMessage& message : inbox[id]) {
      if (const auto* one = std::get_if<Message>(&message)) found.push_back(*one);
    }
    return found;
  }
  const JobMembership& membership() const { return *membership_; }

  TimePoint now = TimePoint{} + 1h;
  std::map<MemberId, std::vector<MembershipEvent>> past;
  std::map<MemberId, std::uint32_t> viewed;
  std::map<MemberId, std::vector<GuardMessage>> inbox;
  std::vector<std::string> ends;

 private:
  static MembershipConfig config() {
    MembershipConfig config;
    config.members = kMembers;
    config.min_members = 2;
    return config;
  }
  void carry_out(std::vector<MembershipAction> actions) {
    for (MembershipAction& action : actions) {
      if (auto* send = std::get_if<SendToMember>(&action)) inbox[send->id].push_back(*send->message);
      if (auto* end = std::get_if<EndJob>(&action)) ends.push_back(end->text);
    }
  }

  const MembershipConfig config_;
  std::unique_ptr<JobMembership> membership_;
};

std::vector<std::vector<std::vector<MemberId>>> orders_of_hosts() {
  return {{{0, 1}, {2, 3}}, {{2, 3}, {0, 1}}};
}

// Members that froze in the epoch answer the next View, and run in it.
void expect_that_it_goes_on(Job& job, const std::vector<MemberId>& members, std::uint32_t epoch) {
  for (const MemberId id : members) job.froze(id, epoch);
  EXPECT_EQ(job.membership().epoch(), epoch + 1);
  EXPECT_EQ(job.membership().members(), members);
  std::optional<View> first;
  for (const MemberId id : members) {
    const auto views = job.got<View>(id);
    ASSERT_FALSE(views.empty());
    if (!first) first = views.back();
    EXPECT_EQ(views.back(), *first);
  }
  EXPECT_EQ(first->epoch, epoch + 1);
}

TEST(MembershipSnapshot, ACalmJobStaysCalm) {
  for (const auto& hosts : orders_of_hosts()) {
    Job job;
    for (MemberId id = 0; id < kMembers; ++id) job.installed(id, 0);
    job.restart();
    job.tell(hosts);
    for (MemberId id = 0; id < kMembers; ++id)
      EXPECT_THAT(job.inbox[id], testing::ElementsAre(GuardMessage(Missed{}))) << "it may have been told of some";
    EXPECT_EQ(job.membership().state_of(1).word, "running");
    job.died(2);
    expect_that_it_goes_on(job, {0, 1, 3}, 0);
  }
}

// After each number of members that have frozen.
TEST(MembershipSnapshot, AnEpochThatEndsGoesOnEnding) {
  for (const auto& hosts : orders_of_hosts()) {
    for (std::size_t frozen = 0; frozen < 3; ++frozen) {
      Job job;
      const std::vector<MemberId> left = {0, 1, 2};
      for (MemberId id = 0; id < kMembers; ++id) job.installed(id, 0);
      job.died(3);
      for (std::size_t i = 0; i < frozen; ++i) job.froze(left[i], 0);
      job.restart();
      job.tell(hosts);
      for (std::size_t i = frozen; i < 3; ++i) EXPECT_FALSE(job.got<Freeze>(left[i]).empty());
      expect_that_it_goes_on(job, left, 0);
    }
  }
}

TEST(MembershipSnapshot, AViewThatSomeHaveNotGotEndsItsEpoch) {
  for (const auto& hosts : orders_of_hosts()) {
    for (std::uint32_t got = 0; got < 7; ++got) {
      Job job;
      for (MemberId id = 0; id < kMembers; ++id) job.installed(id, 0);
      job.died(3);
      for (const MemberId id : {0U, 1U, 2U}) job.froze(id, 0);
      const View view = job.got<View>(0)[0];
      for (const MemberId id : {0U, 1U, 2U}) job.viewed[id] = got >> id & 1U;
      job.restart();
      job.tell(hosts);
      for (const MemberId id : {0U, 1U, 2U}) {
        const auto again = job.got<View>(id);
        EXPECT_EQ(again.size(), job.viewed[id] == 0 ? 1U : 0U);
        for (const View& one : again) EXPECT_EQ(one, view);
        EXPECT_FALSE(job.got<Freeze>(id).empty());
      }
      expect_that_it_goes_on(job, {0, 1, 2}, 1);
    }
  }
}

// Two members fail alike: the others settle, and wait for a second.
TEST(MembershipSnapshot, MembersSettleByOneMessageAcrossARestart) {
  for (const auto& hosts : orders_of_hosts()) {
    for (const bool is_decided : {false, true}) {
      Job job;
      for (MemberId id = 0; id < kMembers; ++id) job.installed(id, 0);
      job.note(3, MemberSent{3, Leave{true, "an error", "alike"}});
      for (const MemberId id : {0U, 1U, 2U}) job.froze(id, 0);
      ASSERT_THAT(job.got<Settle>(0), SizeIs(1));
      const Settle settle = job.got<Settle>(0)[0];
      job.died(2);  // so the View has the progress of fewer
      if (is_decided) {
        job.now += 2s;
        job.take(TimePassed{});
        ASSERT_EQ(job.membership().epoch(), 1U);
      }
      job.restart();
      job.tell(hosts);
      for (const MemberId id : {0U, 1U}) {
        const auto again = job.got<Settle>(id);
        ASSERT_FALSE(again.empty());
        EXPECT_EQ(again[0], settle);
        EXPECT_EQ(job.inbox[id][0].index(), GuardMessage(Settle{}).index()) << "before the View";
      }
    }
  }
}

TEST(MembershipSnapshot, AParkedJobParksAgain) {
  Job job;
  for (MemberId id = 0; id < kMembers; ++id) job.installed(id, 0);
  for (const MemberId id : {2U, 3U}) job.died(id);
  job.froze(0, 0);
  const MembersUnheard unheard{{1}, "did not answer for 10 s"};
  job.take(unheard);
  ASSERT_TRUE(job.membership().is_parked());
  job.restart();
  EXPECT_FALSE(job.membership().is_over());
  job.tell({{0, 1}, {2, 3}});
  job.take(unheard);
  EXPECT_FALSE(job.membership().is_parked());  // the host may have had no time to call
  job.now += 10s;
  job.take(TimePassed{});
  EXPECT_TRUE(job.membership().is_parked());
  EXPECT_THAT(job.got<Parked>(0), testing::Not(IsEmpty()));
  job.now += 61s;
  job.take(TimePassed{});
  EXPECT_THAT(job.ends, SizeIs(1));
  job.restart();
  EXPECT_TRUE(job.membership().is_over());
  EXPECT_EQ(job.membership().end_text(), job.ends[0]);
}

// Two members left in the epoch before, and one of them failed after all.
TEST(MembershipSnapshot, AFailedExitThatLeavesTooFewIsNotForgotten) {
  for (const auto& hosts : orders_of_hosts()) {
    Job job;
    for (MemberId id = 0; id < kMembers; ++id) job.installed(id, 0);
    for (const MemberId id : {1U, 2U}) job.note(id, MemberSent{id, Leave{}});
    job.died(3);
    job.froze(0, 0);
    ASSERT_EQ(job.membership().members(), std::vector<MemberId>{0});
    job.viewed[0] = 1;
    job.installed(0, 1);
    for (const MemberId id : {1U, 2U}) job.note(id, MemberSent{id, Leave{true, "exit code 3", "exit code 3"}});
    ASSERT_EQ(job.got<Freeze>(0).back().epoch, 1U);
    job.restart();
    job.tell(hosts);
    EXPECT_THAT(job.got<Freeze>(0), testing::Not(IsEmpty()));
    job.froze(0, 1);
    ASSERT_THAT(job.ends, SizeIs(1));
    EXPECT_THAT(job.ends[0], testing::HasSubstr("rank 1 failed (exit code 3), rank 2 failed (exit code 3); rank 0 is"));
  }
}

TEST(MembershipSnapshot, AnEvictedMemberStaysOut) {
  Job job;
  for (MemberId id = 0; id < kMembers; ++id) job.installed(id, 0);
  job.take(MembersUnheard{{2}, "did not answer"});
  job.froze(0, 0);
  job.restart();
  EXPECT_TRUE(job.membership().is_evicted(2));
  job.tell({{2, 3}, {0, 1}});
  EXPECT_THAT(job.got<Evicted>(2), SizeIs(1));
  for (const MemberId id : {1U, 3U}) EXPECT_FALSE(job.got<Freeze>(id).empty());
  job.froze(2, 0);
  expect_that_it_goes_on(job, {0, 1, 3}, 0);
}

TEST(MembershipSnapshot, NobodyIsEvictedBeforeItsTime) {
  Job job;
  for (MemberId id = 0; id < kMembers; ++id) job.installed(id, 0);
  job.died(3);
  job.froze(1, 0);
  job.now += 9s;
  job.restart();
  job.tell({{0, 1}, {2, 3}});
  job.now += 9'900ms;
  job.take(TimePassed{});
  EXPECT_FALSE(job.membership().is_parked());
  job.now += 200ms;
  job.take(TimePassed{});
  EXPECT_TRUE(job.membership().is_parked());  // without them too few are left
}

TEST(MembershipSnapshot, OneOfAnotherJobIsRefused) {
  MembershipConfig three;
  three.members = 3;
  const MembershipSnapshot snapshot = JobMembership(three).snapshot();
  MembershipConfig four;
  four.members = 4;
  EXPECT_THROW(JobMembership(four, snapshot, TimePoint{}), ProtocolError);
  MembershipSnapshot wrong = snapshot;
  wrong.view.members = {7};
  EXPECT_THROW(JobMembership(three, wrong, TimePoint{}), ProtocolError);
  wrong.view.members = {};
  EXPECT_THROW(JobMembership(three, wrong, TimePoint{}), ProtocolError);
  EXPECT_EQ(JobMembership(three, snapshot, TimePoint{}).snapshot(), snapshot);
}

}  // namespace
}  // namespace horo
