// A rendezvous that ends, and another one that goes on with its record.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "horo/base/error.h"
#include "tests/elastic/service/core_driver.h"

namespace horo {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

class RendezvousRestart : public testing::Test, public CoreDriver {
 protected:
  RendezvousRestart() : CoreDriver({2, 2}) {}

  // All members run in epoch 0.
  void begin() {
    join(0);
    join(1);
    for (const MemberId id : {0U, 1U, 2U, 3U}) installed(id, 0);
  }
  // Member 3 has died, and the members of epoch 1 have not got their View.
  void decide() {
    begin();
    died(3);
    for (const MemberId id : {0U, 1U, 2U}) froze(id, 0);
  }
  // What the guards know when the Views have been taken by these members.
  HostHello past(std::uint32_t host, const std::vector<MemberId>& viewed) const {
    HostHello told = hello(host);
    for (MemberPast& member : told.past.members) {
      member.events = {MemberSent{member.id, Installed{0}}};
      if (member.id != 3) member.events.emplace_back(MemberSent{member.id, frozen(member.id, 0)});
      if (member.id == 3) member.events.emplace_back(MemberEnded{3, false, "signal 9 (SIGKILL)"});
      if (std::find(viewed.begin(), viewed.end(), member.id) != viewed.end()) member.viewed = 1;
    }
    return told;
  }
  bool is_stored(const JobKey& secret) const {
    const auto& bytes = store.record.bytes;
    return std::search(bytes.begin(), bytes.end(), secret.begin(), secret.end()) != bytes.end();
  }
};

TEST_F(RendezvousRestart, TheTermRisesAndNumbersAreNotGivenAgain) {
  const Registration first = join(0);
  for (std::uint64_t term = 2; term < 5; ++term) {
    start();
    EXPECT_EQ(core->term(), term);
    EXPECT_THROW(core->beat(first.number, now), NotRegistered);
    const Registration other = join(1);
    EXPECT_NE(other.number, first.number);
    EXPECT_EQ(other.term, term);
    EXPECT_THROW(core->report(first.number, {MemberStopped{0}}, now), NotRegistered);
  }
}

TEST_F(RendezvousRestart, TheSecretIsNotInTheRecord) {
  decide();
  const auto views = sent<View>(0);
  ASSERT_THAT(views, SizeIs(2));
  EXPECT_NE(views[0].second.secret, JobKey{});
  EXPECT_FALSE(is_stored(views[0].second.secret));
  EXPECT_TRUE(is_stored(JobKey{}));  // in its place
}

TEST_F(RendezvousRestart, AViewIsSentAgainWithAnotherSecretAndItsEpochEnds) {
  decide();
  const auto first = sent<View>(0);
  ASSERT_THAT(first, SizeIs(2));
  start();
  join(past(0, {0, 1}));
  EXPECT_THAT(sent<View>(0), IsEmpty());
  join(past(1, {}));
  const auto orders_1 = orders(1);
  const auto again = sent_in<View>(orders_1);
  ASSERT_THAT(again, SizeIs(1));
  EXPECT_EQ(again[0].first, 2U);
  EXPECT_NE(again[0].second.secret, first[0].second.secret);
  View view = again[0].second;
  view.secret = first[0].second.secret;
  EXPECT_EQ(view, first[0].second);
  EXPECT_THAT(sent_in<Freeze>(orders_1), Not(IsEmpty()));
  EXPECT_THAT(sent<Freeze>(0), SizeIs(2));
  for (const MemberId id : {0U, 1U, 2U}) froze(id, 1);
  const auto next = sent<View>(1);
  ASSERT_THAT(next, SizeIs(1));
  EXPECT_EQ(next[0].second.epoch, 2U);
  EXPECT_EQ(next[0].second.members, (std::vector<MemberId>{0, 1, 2}));
}

TEST_F(RendezvousRestart, ViewsOfAllMembersOfAHostComeBeforeTheFreezeOfTheirEpoch) {
  decide();
  start();
  join(past(0, {}));
  std::vector<std::size_t> kinds;
  for (const HostOrder& order : orders(0)) {
    const auto* send = std::get_if<SendToMembers>(&order);
    if (send != nullptr) kinds.insert(kinds.end(), send->ids.size(), send->message->index());
  }
  const auto freeze = std::find(kinds.begin(), kinds.end(), GuardMessage(Freeze{}).index());
  EXPECT_EQ(std::count(kinds.begin(), freeze, GuardMessage(View{}).index()), 2);
  EXPECT_EQ(std::count(freeze, kinds.end(), GuardMessage(View{}).index()), 0);
}

TEST_F(RendezvousRestart, AViewThatAllHaveIsNotSentAgain) {
  decide();
  start();
  join(past(0, {0, 1}));
  join(past(1, {2}));
  for (const std::uint32_t host : {0U, 1U}) {
    const auto taken = orders(host);
    EXPECT_THAT(sent_in<View>(taken), IsEmpty());
    EXPECT_THAT(sent_in<Freeze>(taken), IsEmpty());
  }
}

TEST_F(RendezvousRestart, WithoutARestartALostViewKeepsItsSecretAndItsEpoch) {
  decide();
  const auto first = sent<View>(0);
  join(past(1, {}));
  const auto orders_1 = orders(1);
  ASSERT_THAT(sent_in<View>(orders_1), SizeIs(1));
  EXPECT_EQ(sent_in<View>(orders_1)[0].second, first[0].second);
  EXPECT_THAT(sent_in<Freeze>(orders_1), IsEmpty());
}

// The others would wait for the evicted member for ever.
TEST_F(RendezvousRestart, AnEvictionOfWhichNobodyHasHeardEndsTheEpoch) {
  begin();
  report(1, MemberStopped{3});
  pass(11s, {0, 1});
  froze(0, 0);
  ASSERT_TRUE(members()[3].is_evicted);
  start();
  join(0);
  join(1);
  EXPECT_THAT(sent<Freeze>(0), SizeIs(2));
  const auto orders_1 = orders(1);
  EXPECT_THAT(sent_in<Freeze>(orders_1), SizeIs(1));
  EXPECT_THAT(sent_in<Evicted>(orders_1), SizeIs(1));
}

TEST_F(RendezvousRestart, NobodyIsEvictedForTheGracePeriod) {
  begin();
  pass(9s, {0});
  start();
  join(0);
  froze(0, 0);
  pass(9'500ms, {0});
  EXPECT_FALSE(members()[2].is_out);
  pass(1s, {0});
  EXPECT_TRUE(members()[2].is_evicted);
  EXPECT_FALSE(members()[0].is_evicted);
}

// 64 MiB: the View has the effects that one of them lacks.
TEST_F(RendezvousRestart, AHostOfEightMembersWithAsManyEffectsAsTheyKeepGoesOn) {
  spec.ranks_by_host = {8, 1};
  store.record = {};
  start();
  join(0);
  join(1);
  start();
  join(1);
  report(1, MemberSent{8, frozen(8, 0)});
  HostHello told = hello(0);
  for (MemberPast& member : told.past.members) {
    Frozen large = frozen(member.id, 0);
    large.applied = 1;
    large.effects[1] = std::vector<std::byte>(kMaxEffectBytes, std::byte{7});
    member.events = {MemberSent{member.id, Installed{0}}, MemberSent{member.id, std::move(large)}};
  }
  join(told);
  EXPECT_THAT(sent<View>(0), SizeIs(8));
  const auto views = sent<View>(1);
  ASSERT_THAT(views, SizeIs(1));
  EXPECT_EQ(views[0].second.effects.at(1).size(), kMaxEffectBytes);
}

TEST_F(RendezvousRestart, LinesThatNoHostHasHeardAreToldByTheNextOne) {
  begin();
  const auto heard = all_of<StoryTold>(orders(0));
  report(1, MemberStopped{3});
  store.fail_at(1, StoreFault::kFailsAfter);
  EXPECT_THROW(report(1, MemberEnded{3, false, "signal 9 (SIGKILL)"}), StoreLost);
  start();
  for (int times = 0; times < 2; ++times) {
    HostHello told = hello(0);
    told.past.told = heard.empty() ? 0 : heard.back().number;
    join(told);
    const auto lines = all_of<StoryTold>(orders(0));
    ASSERT_THAT(lines, SizeIs(2U + static_cast<std::size_t>(times)));
    EXPECT_THAT(lines[0].text, HasSubstr("rank 3 is stopped"));
    EXPECT_THAT(lines[1].text, HasSubstr("in term 2"));
    if (times == 0) start();
  }
}

TEST_F(RendezvousRestart, LinesThatAHostHasPrintedAreNotToldAgain) {
  decide();
  const auto lines = all_of<StoryTold>(orders(0));
  ASSERT_THAT(lines, Not(IsEmpty()));
  start();
  HostHello told = past(0, {0, 1});
  told.past.told = lines.back().number;
  join(told);
  const auto later = all_of<StoryTold>(orders(0));
  ASSERT_THAT(later, SizeIs(1));
  EXPECT_GT(later[0].number, lines.back().number);
}

// In each epoch a member of host 0 misses one of host 1; the rendezvous is killed in between.
TEST_F(RendezvousRestart, TheThirdEpochThatTheSameHostsEndIsCountedOverRestarts) {
  begin();
  for (std::uint32_t epoch = 0; epoch < 3; ++epoch) {
    EXPECT_FALSE(members()[2].is_out);
    Frozen missing = frozen(1, epoch);
    missing.lost = 2;
    report(0, MemberSent{1, missing});
    for (const MemberId id : {0U, 2U, 3U}) froze(id, epoch);
    start();
    for (const std::uint32_t host : {0U, 1U}) {
      HostHello told = hello(host);
      for (MemberPast& member : told.past.members) {
        member.viewed = epoch + 1;
        member.events = {MemberSent{member.id, Installed{epoch + 1}}};
      }
      if (epoch < 2) join(told);
    }
  }
  EXPECT_TRUE(members()[2].is_evicted && members()[3].is_evicted);
  EXPECT_FALSE(members()[0].is_out || members()[1].is_out);
}

// Host 1 does not answer Freeze. That it registers again does not give it more time.
TEST_F(RendezvousRestart, AFreezeThatIsToldAgainDoesNotRestartTheLimitOfSilence) {
  begin();
  start();
  HostHello silent = hello(1);
  for (MemberPast& member : silent.past.members) member.events = {MemberSent{member.id, Installed{0}}};
  join(0);
  join(silent);
  died(0);
  froze(1, 0);
  EXPECT_THAT(sent<Freeze>(1), SizeIs(2));
  for (int times = 0; times < 4; ++times) {
    pass(2'400ms, {0, 1});
    join(silent);
    EXPECT_THAT(sent<Freeze>(1), SizeIs(2));
  }
  EXPECT_FALSE(members()[2].is_out);
  pass(500ms, {0, 1});
  EXPECT_TRUE(members()[2].is_evicted && members()[3].is_evicted);
}

TEST(JobRecord, IsTheSameAfterARoundTripAndKnowsItsEvictedHosts) {
  JobRecord record;
  record.term = 7;
  record.spec.ranks_by_host = {1, 1};
  record.incarnations = {{0, 100}, {1, 101}};
  record.ended = {5, 6};
  record.evicted = {{1, "host 1 was evicted"}};
  record.membership.members.resize(2);
  record.membership.broken_pairs = {{{0, 1}, 2}};
  record.membership.broken_hosts = {{{0, 1}, 1}, {{0, 7}, 2}};
  record.story = {{3, "rank 1 is stopped"}, {4, "rank 1 goes on"}};
  EXPECT_EQ(decode_job_record(encode(record)), record);
  record.incarnations.erase(1);
  EXPECT_THROW(decode_job_record(encode(record)), ProtocolError);
}

TEST_F(RendezvousRestart, ARecordThatDoesNotKnowTheEpochOfAHostRefusesIt) {
  decide();
  store.record = {};
  start();
  EXPECT_THROW(join(past(0, {0, 1})), HostRefused);
  EXPECT_FALSE(core->job().has_value());
}

// ---- Storage.

TEST_F(RendezvousRestart, NoOrderLeavesWhenTheRecordIsNotStored) {
  for (const StoreFault fault : {StoreFault::kFailsBefore, StoreFault::kFailsAfter, StoreFault::kIsLost}) {
    store.record = {};
    start();
    begin();
    orders(0);
    orders(1);
    store.fail_at(1, fault);
    EXPECT_THROW(died(3), StoreLost);
    for (const std::uint32_t host : {0U, 1U}) EXPECT_THAT(orders(host), IsEmpty());
    start();
    join(past(0, {}));
    join(past(1, {}));
    EXPECT_THAT(sent<View>(0), SizeIs(2));
  }
}

TEST_F(RendezvousRestart, ASecondRendezvousStopsTheFirst) {
  begin();
  CoreDriver second({2, 2});
  second.store.record = store.record;
  second.start();
  store.record = second.store.record;
  EXPECT_THROW(died(3), StoreLost);
}

TEST_F(RendezvousRestart, AnUnreadableRecordIsNotTakenForNone) {
  begin();
  store.record.bytes.pop_back();
  EXPECT_THROW(start(), std::exception);
}

// ---- The end of a job.

TEST_F(RendezvousRestart, AfterAJobOnlyNewStartsBeginAnother) {
  begin();
  for (const MemberId id : {0U, 1U, 2U, 3U}) died(id);
  for (int restarts = 0; restarts < 2; ++restarts) {
    join(0);  // it asks for the end
    ASSERT_TRUE(core->job().has_value());
    for (const MemberView& member : members()) EXPECT_TRUE(member.is_out);
    start();
  }
  join(hello(1, 201));
  EXPECT_FALSE(members()[0].is_out);
  EXPECT_THROW(join(0), HostRefused);
  EXPECT_THROW(join(1), HostRefused);
  EXPECT_THROW(core->check_incarnation(0, 100), HostRefused);
  start();
  EXPECT_THROW(join(0), HostRefused);
  join(hello(0, 200));
}

TEST_F(RendezvousRestart, AnEarlierJobIsNotForgotten) {
  for (std::uint64_t round = 0; round < 4; ++round) {
    join(hello(0, 1'000 + round));
    join(hello(1, 2'000 + round));
    for (const MemberId id : {0U, 1U, 2U, 3U}) died(id);
  }
  join(hello(0, 1'004));
  for (std::uint64_t round = 0; round < 4; ++round) EXPECT_THROW(join(hello(1, 2'000 + round)), HostRefused);
}

class ParkedJob : public RendezvousRestart {
 protected:
  // The job of four members that needs three ends, since two have died.
  void end() {
    spec.min_members = 3;
    spec.park_timeout = 2s;
    begin();
    died(2);
    died(3);
    for (const MemberId id : {0U, 1U}) froze(id, 0);
    pass(3s, {0, 1});
  }
};

TEST_F(ParkedJob, ItsEndIsToldAgain) {
  end();
  EXPECT_THAT(all_of<EndJob>(orders(1)), SizeIs(1));
  join(0);
  const auto ends = all_of<EndJob>(orders(0));
  ASSERT_THAT(ends, SizeIs(1));
  EXPECT_THAT(ends[0].text, HasSubstr("none can come back"));
}

TEST_F(ParkedJob, ItsEndIsToldAgainByTheNextRendezvous) {
  end();
  start();
  EXPECT_EQ(core->next_deadline(), std::nullopt);
  join(0);
  EXPECT_THAT(all_of<EndJob>(orders(0)), SizeIs(1));
}

}  // namespace
}  // namespace horo
