#include "elastic/messages.h"

#include <gtest/gtest.h>

#include <array>

#include "elastic/commit.h"
#include "elastic/packets.h"
#include "horo/base/error.h"

namespace horo {
namespace {

std::vector<MemberMessage> member_messages() {
  return {Frozen{7, {{0, 12}, {3, UINT64_MAX}, {kMessageLane, 1}}, 2, "rank 2 is gone"},
          Frozen{0, {}, std::nullopt, "", 9, 2, {{4, {std::byte{7}}}, {9, {}}}},
          Frozen{0, {}, std::nullopt, "", 0, 0, {}, {std::byte{5}, std::byte{6}}},
          Frozen{0, {}, std::nullopt, ""},
          Installed{UINT32_MAX},
          Leave{false, ""},
          Leave{false, kDrained},
          Leave{true, "ValueError: no\nü"},
          Report{},
          Report{2, 7, UINT64_MAX, 3, "layer.weight"},
          Frozen{4, {{0, 3}}, std::nullopt, "", 2, 2, {}, {std::byte{5}}, true, {std::byte{9}, std::byte{0}}},
          CanGrow{},
          CanGrow{std::string("version=0.9\nshape=\0", 19)},
          Ready{},
          Ready{"version=0.9", {std::byte{5}}},
          Synced{},
          Synced{3, "256 MiB from ranks 0 to 3 in 41 ms"}};
}

std::vector<GuardMessage> guard_messages() {
  View view{3, {0, 2, 5}, {}, {{0, {{0, 4}, {1, 9}}}, {5, {}}}, "rank 1 died"};
  view.secret.fill(std::byte{0xa5});
  view.cards = {{0, {std::byte{1}}}, {2, {}}, {5, {std::byte{2}, std::byte{3}}}};
  View grown{4, {0, 2, 6, 7}, {}, {{0, {}}, {2, {}}}, ""};
  grown.joined = {6, 7};
  grown.at_border = true;
  grown.sets = {std::byte{1}, std::byte{2}};
  return {Freeze{7, 2, "rank 2 died"},
          grown,
          Freeze{0, std::nullopt, ""},
          view,
          View{},
          Settle{3, {{0, {{0, 9}, {4, 7}}}, {1, {{0, 8}, {4, 1'000}}}, {2, {{0, 9}}}, {3, {{0, UINT64_MAX}}}}, {}},
          Parked{1, 2},
          Evicted{"silent for 10 s"},
          Evicted{""},
          Ask{},
          Drain{},
          Drain{UINT32_MAX},
          Missed{},
          Missed{{0, 3, UINT32_MAX}},
          Grow{},
          Grow{{4, 5}}};
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

TEST(ElasticMessages, MembersWithTheSameLanesTakeFewBytes) {
  Settle settle;
  for (std::uint32_t lane = 0; lane < 20; ++lane) settle.progress[0][lane] = 1'000'000;
  const std::size_t bytes_of_one = encode(GuardMessage(settle)).size();
  for (MemberId member = 1; member <= 100; ++member) settle.progress[member] = settle.progress[0];
  settle.progress[50][7] += 63;
  settle.progress[51][7] -= 64;
  const std::vector<std::byte> bytes = encode(GuardMessage(settle));
  EXPECT_EQ(decode_guard_message(bytes), GuardMessage(settle));
  EXPECT_LE(bytes.size(), bytes_of_one + std::size_t{100} * 25 + 2);
}

TEST(ElasticMessages, TooManyLanesOrCardsOfAllMembersAreRefused) {
  Settle settle;
  for (std::uint32_t lane = 0; lane < kMaxLanes; ++lane) settle.progress[0][lane] = lane;
  for (MemberId member = 1; member < kMaxLanesOfAll / kMaxLanes; ++member) settle.progress[member] = settle.progress[0];
  std::vector<std::byte> bytes = encode(GuardMessage(settle));
  EXPECT_EQ(decode_guard_message(bytes), GuardMessage(settle));
  const std::vector<std::byte> last(bytes.end() - 4 - static_cast<std::ptrdiff_t>(5 + kMaxLanes), bytes.end() - 4);
  bytes.insert(bytes.end() - 4, last.begin(), last.end());  // a member more with as many lanes
  bytes[bytes.size() - 4 - last.size() + 1] = std::byte{kMaxLanesOfAll / kMaxLanes / 256};
  bytes[bytes.size() - 4 - last.size()] = std::byte{0};
  bytes[6] = std::byte{1};  // 1,025 of them
  EXPECT_THROW(decode_guard_message(bytes), ProtocolError);

  View view;
  for (MemberId member = 0; member < kMaxCardBytesOfAll / kMaxCardBytes; ++member)
    view.cards[member].resize(kMaxCardBytes);
  EXPECT_TRUE(fits({}, view.cards));
  EXPECT_EQ(decode_guard_message(encode(GuardMessage(view))), GuardMessage(view));
  view.cards[UINT32_MAX] = {std::byte{1}};
  EXPECT_FALSE(fits({}, view.cards));
}

TEST(ElasticMessages, TooManyOrTooLongEffectsAreRefused) {
  Frozen frozen;
  for (std::uint64_t number = 1; number <= kMaxEffects; ++number) frozen.effects[number];
  std::vector<std::byte> bytes = encode(MemberMessage(frozen));
  EXPECT_EQ(decode_member_message(bytes), MemberMessage(frozen));
  const std::size_t count_at = bytes.size() - kMaxEffects * 12 - 13;
  bytes.resize(bytes.size() + 12);
  bytes[count_at] = std::byte{kMaxEffects % 256 + 1};
  EXPECT_THROW(decode_member_message(bytes), ProtocolError);

  frozen.effects = {{1, std::vector<std::byte>(kMaxEffectBytes)}};
  EXPECT_EQ(decode_member_message(encode(MemberMessage(frozen))), MemberMessage(frozen));
  frozen.effects[1].resize(kMaxEffectBytes + 1);
  EXPECT_THROW(decode_member_message(encode(MemberMessage(frozen))), ProtocolError);
}

TEST(ElasticMessages, ALongerCardThanAMemberSendsIsRefused) {
  Frozen frozen;
  frozen.card.resize(kMaxCardBytes);
  std::vector<std::byte> bytes = encode(MemberMessage(frozen));
  EXPECT_EQ(decode_member_message(bytes), MemberMessage(frozen));
  bytes[bytes.size() - kMaxCardBytes - 9] = std::byte{1};  // 4,097 bytes
  bytes.emplace_back();
  EXPECT_THROW(decode_member_message(bytes), ProtocolError);
}

std::vector<std::byte> message_of(std::size_t bytes) {
  std::vector<std::byte> message(bytes);
  for (std::size_t i = 0; i < bytes; ++i) message[i] = std::byte(i % 251);
  return message;
}

TEST(ElasticPackets, AMessageOfAnySizeArrivesAsItWasSent) {
  PacketJoiner joiner;
  for (const std::size_t bytes :
       {std::size_t{2}, kMaxPacket, kMaxPacket + 1, 3 * (kMaxPacket - 2), kMaxMemberMessage}) {
    const std::vector<std::byte> message = message_of(bytes);
    const auto packets = packets_of(message);
    for (std::size_t i = 0; i < packets.size(); ++i) {
      EXPECT_LE(packets[i].size(), kMaxPacket);
      const auto whole = joiner.take(packets[i]);
      ASSERT_EQ(whole.has_value(), i + 1 == packets.size());
      EXPECT_TRUE(!whole || *whole == message) << bytes;
    }
  }
}

TEST(ElasticPackets, AMessageOfOnePacketMayComeBetweenThoseOfAnother) {
  PacketJoiner joiner;
  const auto packets = packets_of(message_of(kMaxPacket + 1));
  ASSERT_EQ(packets.size(), 2U);
  EXPECT_FALSE(joiner.take(packets[0]));
  EXPECT_EQ(joiner.take(message_of(5)), message_of(5));
  EXPECT_TRUE(joiner.take(packets[1]) == message_of(kMaxPacket + 1));
}

TEST(ElasticPackets, WhatIsNeverSentIsRefused) {
  const auto packets = packets_of(message_of(kMaxPacket + 9));
  EXPECT_THROW(PacketJoiner().take(std::vector<std::byte>(kMaxPacket + 1)), ProtocolError);
  EXPECT_THROW(PacketJoiner().take(packets[1]), ProtocolError) << "the last part alone";
  EXPECT_THROW(PacketJoiner().take(std::span(packets[0]).first(kMaxPacket - 1)), ProtocolError) << "a part that ends";
  PacketJoiner joiner;
  for (std::size_t bytes = 0; bytes + kMaxPacket - 2 <= kMaxMemberMessage; bytes += kMaxPacket - 2) {
    EXPECT_FALSE(joiner.take(packets[0]));
  }
  EXPECT_THROW(joiner.take(packets[0]), ProtocolError) << "too long a message";
}

TEST(Commit, NeedsEveryParticipantThatGoesOn) {
  View view;
  view.progress = {{0, {{0, 7}}}, {2, {{0, 6}}}, {5, {{0, 8}}}};
  EXPECT_TRUE(is_committed(view.progress, 0, 6, std::array<MemberId, 3>{0, 2, 5}));
  EXPECT_FALSE(is_committed(view.progress, 0, 7, std::array<MemberId, 3>{0, 2, 5}));
  EXPECT_TRUE(is_committed(view.progress, 0, 7, std::array<MemberId, 2>{0, 5}));
}

TEST(Commit, DoesNotNeedAMemberThatIsGone) {
  View view;
  view.progress = {{0, {{0, 7}}}};
  EXPECT_TRUE(is_committed(view.progress, 0, 7, std::array<MemberId, 2>{0, 1}));
}

TEST(Commit, NeedsAParticipantThatHasNotBegun) {
  View view;
  view.progress = {{0, {{0, 7}}}, {1, {}}};
  EXPECT_FALSE(is_committed(view.progress, 0, 1, std::array<MemberId, 2>{0, 1}));
}

}  // namespace
}  // namespace horo
