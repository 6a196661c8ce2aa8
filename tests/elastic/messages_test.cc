#include "elastic/messages.h"

#include <gtest/gtest.h>

#include <array>

#include "elastic/commit.h"
#include "horo/base/error.h"

namespace horo {
namespace {

std::vector<MemberMessage> member_messages() {
  return {Frozen{7, {{0, 12}, {3, UINT64_MAX}, {kMessageLane, 1}}, 2, "rank 2 is gone"},
          Frozen{0, {}, std::nullopt, ""},
          Installed{UINT32_MAX},
          Leave{false, ""},
          Leave{true, "ValueError: no\nü"},
          Report{},
          Report{2, 7, UINT64_MAX, 3, "layer.weight"}};
}

std::vector<GuardMessage> guard_messages() {
  View view{3, {0, 2, 5}, {}, {{0, {{0, 4}, {1, 9}}}, {5, {}}}, "rank 1 died"};
  view.secret.fill(std::byte{0xa5});
  return {Freeze{7, 2, "rank 2 died"},
          Freeze{0, std::nullopt, ""},
          view,
          View{},
          Parked{1, 2},
          Evicted{"silent for 10 s"},
          Evicted{""},
          Ask{}};
}

// Calls `use` with the bytes of each message and the decoder of its direction.
template <class Use>
void for_each_message(const Use& use) {
  for (const MemberMessage& message : member_messages()) {
    use(encode(message), [](std::span<const std::byte> bytes) { return encode(decode_member_message(bytes)); });
  }
  for (const GuardMessage& message : guard_messages()) {
    use(encode(message), [](std::span<const std::byte> bytes) { return encode(decode_guard_message(bytes)); });
  }
}

TEST(ElasticMessages, AMemberMessageArrivesAsItWasSent) {
  for (const MemberMessage& message : member_messages()) EXPECT_EQ(decode_member_message(encode(message)), message);
}

TEST(ElasticMessages, AGuardMessageArrivesAsItWasSent) {
  for (const GuardMessage& message : guard_messages()) EXPECT_EQ(decode_guard_message(encode(message)), message);
}

TEST(ElasticMessages, EveryTruncationIsRefused) {
  for_each_message([](const std::vector<std::byte>& bytes, const auto& decode) {
    for (std::size_t size = 0; size < bytes.size(); ++size) {
      EXPECT_THROW(decode(std::span(bytes).first(size)), ProtocolError) << "the first " << size << " bytes";
    }
  });
}

TEST(ElasticMessages, ATrailingByteIsRefused) {
  for_each_message([](std::vector<std::byte> bytes, const auto& decode) {
    bytes.push_back(std::byte{0});
    EXPECT_THROW(decode(bytes), ProtocolError);
  });
}

TEST(ElasticMessages, AFlippedBitIsRefusedOrMakesAnotherValidMessage) {
  for_each_message([](const std::vector<std::byte>& bytes, const auto& decode) {
    for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
      std::vector<std::byte> flipped = bytes;
      flipped[bit / 8] ^= std::byte{1} << (bit % 8);
      try {
        EXPECT_EQ(decode(flipped), flipped) << "bit " << bit;
      } catch (const ProtocolError&) {
      }
    }
  });
}

TEST(ElasticMessages, AMessageOfTheOtherDirectionIsRefused) {
  for (const MemberMessage& message : member_messages()) {
    EXPECT_THROW(decode_guard_message(encode(message)), ProtocolError);
  }
  for (const GuardMessage& message : guard_messages()) {
    EXPECT_THROW(decode_member_message(encode(message)), ProtocolError);
  }
}

TEST(ElasticMessages, ALongTextIsCutBetweenCharacters) {
  const std::string text = std::string(kMaxMemberText - 1, 'x') + "ü and more";
  const auto leave = std::get<Leave>(decode_member_message(encode(MemberMessage(Leave{true, text}))));
  EXPECT_EQ(leave.reason, std::string(kMaxMemberText - 1, 'x'));
}

TEST(ElasticMessages, TooManyMembersOrLanesAreRefused) {
  Frozen frozen;
  for (std::uint32_t lane = 0; lane < kMaxLanes; ++lane) frozen.progress[lane] = 1;
  std::vector<std::byte> bytes = encode(MemberMessage(frozen));
  EXPECT_EQ(decode_member_message(bytes), MemberMessage(frozen));
  bytes.resize(bytes.size() + 12);  // one lane more than allowed would fit
  bytes[6] = std::byte{kMaxLanes % 256 + 1};
  EXPECT_THROW(decode_member_message(bytes), ProtocolError);

  View view;
  for (MemberId member = 0; member < kMaxMembers; ++member) view.members.push_back(member);
  bytes = encode(GuardMessage(view));
  EXPECT_EQ(decode_guard_message(bytes), GuardMessage(view));
  bytes[6] = std::byte{kMaxMembers % 256 + 1};
  EXPECT_THROW(decode_guard_message(bytes), ProtocolError);
}

TEST(ElasticMessages, AMessageTooLongForTheSocketIsAnError) {
  View view;
  for (MemberId member = 0; member < 20; ++member) {
    for (std::uint32_t lane = 0; lane < kMaxLanes; ++lane) view.progress[member][lane] = 1;
  }
  EXPECT_THROW(encode(GuardMessage(view)), std::length_error);
  EXPECT_THROW(decode_member_message(std::vector<std::byte>(kMaxMemberMessage + 1)), ProtocolError);
}

TEST(Commit, NeedsEveryParticipantThatGoesOn) {
  View view;
  view.progress = {{0, {{0, 7}}}, {2, {{0, 6}}}, {5, {{0, 8}}}};
  EXPECT_TRUE(is_committed(view, 0, 6, std::array<MemberId, 3>{0, 2, 5}));
  EXPECT_FALSE(is_committed(view, 0, 7, std::array<MemberId, 3>{0, 2, 5}));
  EXPECT_TRUE(is_committed(view, 0, 7, std::array<MemberId, 2>{0, 5}));
}

TEST(Commit, DoesNotNeedAMemberThatIsGone) {
  View view;
  view.progress = {{0, {{0, 7}}}};
  EXPECT_TRUE(is_committed(view, 0, 7, std::array<MemberId, 2>{0, 1}));
}

TEST(Commit, NeedsAParticipantThatHasNotBegun) {
  View view;
  view.progress = {{0, {{0, 7}}}, {1, {}}};
  EXPECT_FALSE(is_committed(view, 0, 1, std::array<MemberId, 2>{0, 1}));
}

}  // namespace
}  // namespace horo
