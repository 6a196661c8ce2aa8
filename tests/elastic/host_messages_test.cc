#include "elastic/host_messages.h"

#include <gtest/gtest.h>

#include <functional>
#include <random>

#include "horo/base/error.h"
#include "tests/effort.h"

namespace horo {
namespace {

using Bytes = std::vector<std::byte>;

JobSpec some_spec() {
  JobSpec spec;
  spec.ranks_by_host = {2, 1, 3};
  spec.min_members = 4;
  return spec;
}

std::vector<GuardSays> guard_sayings() {
  const Frozen frozen{7, {{0, 12}, {3, 9}}, 2, "rank 2 is gone", 9, 2, {{4, {std::byte{7}}}}, {std::byte{5}}};
  HostPast past;
  past.members = {{1,
                   4,
                   {MemberSent{1, Installed{4}}, MemberSent{1, frozen}, MemberSent{1, Leave{true, "no", "x"}},
                    MemberStopped{1}, MemberDrained{1}, MemberEnded{1, false, "signal 9 (SIGKILL)"}}},
                  {2, 0, {}},
                  {9, UINT32_MAX, {MemberContinued{9}}}};
  past.told = UINT64_MAX;
  return {past,
          HostPast{},
          HostEvent(MemberEnded{3, true, ""}),
          HostEvent(MemberEnded{UINT32_MAX, false, "exit code 1"}),
          HostEvent(MemberStopped{0}),
          HostEvent(MemberContinued{1}),
          HostEvent(MemberDrained{UINT32_MAX}),
          HostEvent(MemberSent{2, frozen}),
          HostEvent(MemberSent{2, Report{2, 7, 8, 3, "layer.weight"}})};
}

std::vector<AgentSays> agent_messages() {
  View view{3, {0, 2}, {}, {{0, {{0, 4}}}, {2, {}}}, "rank 1 died"};
  view.secret.fill(std::byte{0xa5});
  const auto change = std::make_shared<const JobChange>(
      JobChange{3,
                true,
                true,
                {{0, {{{"parked", "", true}, false, false, true}, true}},
                 {UINT32_MAX, {{{"evicted", "it\nslept", false}, true, true, false}, false}}}});
  const auto shared = [](GuardMessage message) { return std::make_shared<const GuardMessage>(std::move(message)); };
  return {HostOrder(SendToMembers{{2}, shared(view)}),
          HostOrder(SendToMembers{{0, 2, 7}, shared(Freeze{7, 2, "rank 2 died"})}),
          HostOrder(SendToMembers{{UINT32_MAX}, shared(Ask{})}),
          HostOrder(StoryTold{UINT64_MAX, "rank 2 left"}),
          HostOrder(EndJob{"no rank is left"}),
          HostOrder(JobChanged{change}),
          HostOrder(JobChanged{std::make_shared<const JobChange>()}),
          TellPast{},
          Contact{true, ""},
          Contact{false, "no connection"},
          LockedOut{"host 1 was evicted: it did not answer"},
          Alive{}};
}

JobView some_job() {
  return {3,
          true,
          {0, 2},
          {{{"parked", "", true}, false, false, true},
           {{"evicted", "it\nslept", false}, true, true, false},
           {{"frozen", "", true}, false, false, true}}};
}

// The bytes of each message, and what decodes and encodes them again.
struct Case {
  Bytes bytes;
  std::function<Bytes(const Bytes&)> again;
};
std::vector<Case> cases() {
  std::vector<Case> all;
  const auto spec = [](const Bytes& bytes) { return encode(decode_job_spec(bytes)); };
  const auto guard = [](const Bytes& bytes) { return encode(decode_guard_says(bytes)); };
  const auto agent = [](const Bytes& bytes) { return encode(decode_agent_says(bytes)); };
  all.push_back({encode(some_spec()), spec});
  all.push_back({encode(some_job()), [](const Bytes& bytes) { return encode(decode_job_view(bytes)); }});
  for (const GuardSays& message : guard_sayings()) all.push_back({encode(message), guard});
  for (const AgentSays& message : agent_messages()) all.push_back({encode(message), agent});
  return all;
}

// A message is refused, or what it means is written as the same bytes.
void expect_refused_or_same(const Case& one, const Bytes& bytes) {
  try {
    EXPECT_EQ(one.again(bytes), bytes);
  } catch (const ProtocolError&) {
  }
}

TEST(HostMessages, AreTheSameAfterARoundTrip) {
  for (const Case& one : cases()) EXPECT_EQ(one.again(one.bytes), one.bytes);
  EXPECT_EQ(decode_job_spec(encode(some_spec())), some_spec());
  const GuardSays past = decode_guard_says(encode(guard_sayings()[0]));
  const HostPast& found = std::get<HostPast>(past);
  ASSERT_EQ(found.members.size(), 3U);
  EXPECT_EQ(found.members[2].id, 9U);
  EXPECT_EQ(found.members[0].events.size(), 6U);
  EXPECT_EQ(std::get<Leave>(std::get<MemberSent>(found.members[0].events[2]).message).failure, "x");
  EXPECT_EQ(found.told, UINT64_MAX);
}

TEST(HostMessages, AreRefusedWhenTheyAreCutOrLonger) {
  for (const Case& one : cases()) {
    for (std::size_t size = 0; size < one.bytes.size(); ++size)
      EXPECT_THROW(one.again({one.bytes.begin(), one.bytes.begin() + static_cast<std::ptrdiff_t>(size)}),
                   ProtocolError);
    Bytes longer = one.bytes;
    longer.push_back(std::byte{0});
    EXPECT_THROW(one.again(longer), ProtocolError);
  }
}

TEST(HostMessages, FlippedBitsAreRefusedOrMeanWhatTheySay) {
  for (const Case& one : cases()) {
    for (std::size_t bit = 0; bit < one.bytes.size() * 8; ++bit) {
      Bytes flipped = one.bytes;
      flipped[bit / 8] ^= std::byte{1} << (bit % 8);
      expect_refused_or_same(one, flipped);
    }
  }
}

TEST(HostMessages, RandomBytesAreRefusedOrMeanWhatTheySay) {
  std::mt19937_64 random(7);
  for (const Case& one : cases()) {
    for (int round = 0; round < test::effort(2'000); ++round) {
      Bytes bytes = one.bytes;
      const std::size_t changes = 1 + random() % 6;
      for (std::size_t i = 0; i < changes; ++i) bytes[random() % bytes.size()] = static_cast<std::byte>(random());
      if (random() % 4 == 0) bytes.resize(random() % bytes.size());
      expect_refused_or_same(one, bytes);
      Bytes noise(1 + random() % 64);
      for (std::byte& byte : noise) byte = static_cast<std::byte>(random());
      noise[0] = std::byte{kHostMessageVersion};
      expect_refused_or_same(one, noise);
    }
  }
}

TEST(HostMessages, AnotherVersionIsRefused) {
  for (const Case& one : cases()) {
    Bytes other = one.bytes;
    ++reinterpret_cast<std::uint8_t&>(other[0]);
    EXPECT_THROW(one.again(other), ProtocolError);
  }
}

TEST(HostMessages, AMessageOfTheOtherDirectionIsRefused) {
  for (const AgentSays& message : agent_messages()) EXPECT_THROW(decode_guard_says(encode(message)), ProtocolError);
  for (const GuardSays& message : guard_sayings()) EXPECT_THROW(decode_agent_says(encode(message)), ProtocolError);
  EXPECT_THROW(decode_guard_says(encode(some_spec())), ProtocolError);
}

TEST(HostMessages, AJobOutOfBoundsIsRefused) {
  for (const auto& change : std::vector<std::function<void(JobSpec&)>>{
           [](JobSpec& spec) { spec.ranks_by_host.clear(); }, [](JobSpec& spec) { spec.ranks_by_host[1] = 0; },
           [](JobSpec& spec) { spec.ranks_by_host[1] = kMaxMembers; },
           [](JobSpec& spec) {
             spec.ranks_by_host = {UINT32_MAX, 7};
           },
           [](JobSpec& spec) { spec.ranks_by_host.assign(kMaxHosts + 1, 1); },
           [](JobSpec& spec) { spec.min_members = 0; }, [](JobSpec& spec) { spec.min_members = 7; },
           [](JobSpec& spec) { spec.silence_limit = std::chrono::milliseconds(0); },
           [](JobSpec& spec) { spec.silence_limit = std::chrono::milliseconds(INT64_MAX); },
           [](JobSpec& spec) { spec.park_timeout = std::chrono::milliseconds(-1); }}) {
    JobSpec spec = some_spec();
    change(spec);
    EXPECT_THROW(decode_job_spec(encode(spec)), ProtocolError);
  }
}

TEST(HostMessages, APastOutOfBoundsIsRefused) {
  const auto refused = [](const HostPast& past) {
    EXPECT_THROW(decode_guard_says(encode(GuardSays(past))), ProtocolError);
  };
  refused({{{2, 0, {}}, {1, 0, {}}}, 0});
  refused({{{2, 0, {}}, {2, 0, {}}}, 0});
  HostPast large;
  for (MemberId id = 0; id <= kMaxMembers; ++id) large.members.push_back({id, 0, {}});
  refused(large);
}

// 8 members with as many effects as a member keeps.
TEST(HostMessages, APastOverTheLimitOfAMessageTravelsInParts) {
  HostPast past;
  past.told = 7;
  for (MemberId id = 3; id < 11; ++id) {
    Frozen frozen{1, {{0, id}}, std::nullopt, "rank 0 died", 8};
    for (std::uint64_t place = 1; place <= 8; ++place) {
      frozen.effects[place] = Bytes(kMaxEffectBytes / 8, static_cast<std::byte>(id));
    }
    past.members.push_back({id, 1, {MemberSent{id, Installed{1}}, MemberSent{id, std::move(frozen)}}});
  }
  const std::vector<Bytes> parts = encode_parts(past);
  EXPECT_EQ(parts.size(), 8U);
  HostPast found;
  std::size_t bytes = 0;
  for (const Bytes& part : parts) {
    EXPECT_LE(part.size(), kMaxPastOfMember);
    EXPECT_TRUE(found.members.empty() || !found.is_last);
    bytes += part.size();
    append(std::get<HostPast>(decode_guard_says(part)), found);
  }
  EXPECT_GT(bytes, kMaxHostMessage);
  EXPECT_EQ(encode_parts(found), parts);
  EXPECT_EQ(found.told, 7U);
}

TEST(HostMessages, PartsOfAPastAreAsSmallAsTheyCanBeAndInOrder) {
  HostPast past;
  for (MemberId id = 0; id < 5; ++id) past.members.push_back({id, 0, {MemberStopped{id}}});
  EXPECT_EQ(encode_parts(past).size(), 1U);
  EXPECT_EQ(encode_parts(past)[0], encode(GuardSays(past)));
  EXPECT_EQ(encode_parts(past, 40).size(), 3U);  // 17 bytes of each member
  EXPECT_EQ(encode_parts(past, 0).size(), 5U);
  EXPECT_EQ(encode_parts({}).size(), 1U);
  HostPast found;
  const auto part = [](MemberId id) { return HostPast{{{id, 0, {}}}, 0, false}; };
  append(part(2), found);
  for (const HostPast& wrong : {part(1), part(2), HostPast{}}) EXPECT_THROW(append(wrong, found), ProtocolError);
  append(part(3), found);
  EXPECT_EQ(found.members.size(), 2U);
}

TEST(HostMessages, LongTextsAreCut) {
  const AgentSays says = decode_agent_says(encode(AgentSays(HostOrder(StoryTold{1, std::string(1 << 20, 'x')}))));
  EXPECT_EQ(std::get<StoryTold>(std::get<HostOrder>(says)).text.size(), kMaxStoryLine);
}

TEST(HostMessages, TheHeadOfAnOrderPrecedesItsMessage) {
  const SendToMembers order{{3, 4}, std::make_shared<const GuardMessage>(Freeze{7, 2, "rank 2 died"})};
  const Bytes message = encode(*order.message);
  Bytes bytes = encode_head(order, message.size());
  bytes.insert(bytes.end(), message.begin(), message.end());
  EXPECT_EQ(bytes, encode(AgentSays(HostOrder(order))));
}

TEST(JobChange, LeadsFromOneJobViewToTheOther) {
  const JobView first = first_job_view(3), last = some_job();
  JobView view = first;
  JobView middle = first;
  middle.members[1].state.word = "running";
  for (const JobView& next : {middle, last, last, first}) {
    apply(change_of(view, next), view);
    EXPECT_EQ(view, next);
  }
  EXPECT_EQ(change_of(first, middle).members.size(), 1U);
  JobChange whole = change_of(first, last);
  whole.is_from_first = true;
  view = middle;
  apply(whole, view);
  EXPECT_EQ(view, last);
}

TEST(JobChange, MayAddMembersAtTheEnd) {
  const JobView first = first_job_view(2);
  JobView last = first;
  last.epoch = 1;
  last.members.push_back({{"ready", ""}, false, false, false});
  last.members.push_back({{"joining", "", true}, false, false, false});
  last.ranks = {0, 1, 3};
  JobView view = first;
  apply(change_of(first, last), view);
  EXPECT_EQ(view, last);
  JobChange whole = change_of(first, last);
  whole.is_from_first = true;
  apply(whole, view);
  EXPECT_EQ(view, last);
}

TEST(JobChange, OfAnotherJobIsRefused) {
  JobView view = first_job_view(2);
  JobChange change = change_of(first_job_view(3), first_job_view(5));
  EXPECT_THROW(apply(change, view), ProtocolError);  // it does not name member 2
}

TEST(JobSpec, NumbersMembersByHost) {
  const JobSpec spec = some_spec();
  EXPECT_EQ(spec.members(), 6U);
  EXPECT_EQ(spec.first_member(2), 3U);
  for (const auto& [id, host] : {std::pair(0U, 0U), {1U, 0U}, {2U, 1U}, {3U, 2U}, {5U, 2U}})
    EXPECT_EQ(spec.host_of(id), host);
}

}  // namespace
}  // namespace horo
