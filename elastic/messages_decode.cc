// The reading of what messages.cc writes. Input is not trusted.
#include <algorithm>
#include <utility>

#include "elastic/message_kind.h"
#include "elastic/messages.h"
#include "horo/base/error.h"
#include "horo/base/wire.h"

namespace horo {
namespace {

constexpr std::size_t kLaneBytes = 12;     // of a lane in a Progress
constexpr std::size_t kEffectBytes = 12;   // of an empty effect
constexpr std::size_t kProgressBytes = 5;  // of a member with an empty Progress, as the one before
constexpr std::size_t kCardBytes = 8;      // of a member with an empty card

static_assert(kMaxMembers * (4 + kProgressBytes + 4 + kCardBytes + 4) + kMaxLanesOfAll * kLaneBytes +
                      kMaxCardBytesOfAll + kMaxEffectBytes + kMaxEffects * kEffectBytes + 2 * kMaxMemberText +
                      kMaxSetState <=
                  kMaxMemberMessage,
              "the longest view");

bool read_flag(ByteReader& in) {
  const std::uint8_t value = in.u8();
  if (value > 1) throw ProtocolError("a flag is " + std::to_string(value) + ", expected 0 or 1");
  return value == 1;
}

std::uint32_t read_count(ByteReader& in, std::size_t element_bytes, std::size_t most, const char* what) {
  const std::uint32_t count = in.count(element_bytes);
  if (count > most) {
    throw ProtocolError(std::to_string(count) + " " + what + ", at most " + std::to_string(most) + " expected");
  }
  return count;
}

std::optional<MemberId> read_member(ByteReader& in) {
  if (!read_flag(in)) return std::nullopt;
  return in.u32();
}

// Appends to a map in the order of its keys.
template <class Map>
void append(Map& map, typename Map::key_type key, typename Map::mapped_type value) {
  if (!map.empty() && key <= map.rbegin()->first)
    throw ProtocolError("lanes, members, effects or cards are not in ascending order");
  map.emplace_hint(map.end(), key, std::move(value));
}

Progress read_progress(ByteReader& in) {
  Progress progress;
  const std::uint32_t lanes = read_count(in, kLaneBytes, kMaxLanes, "lanes of a member");
  for (std::uint32_t i = 0; i < lanes; ++i) {
    const std::uint32_t lane = in.u32();
    append(progress, lane, in.u64());
  }
  return progress;
}

std::vector<std::byte> read_bytes(ByteReader& in, std::size_t most, const char* what) {
  const auto bytes = in.raw(read_count(in, 1, most, what));
  return {bytes.begin(), bytes.end()};
}

Effects read_effects(ByteReader& in) {
  Effects effects;
  const std::uint32_t count = read_count(in, kEffectBytes, kMaxEffects, "effects");
  std::size_t left = kMaxEffectBytes;
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::uint64_t number = in.u64();
    append(effects, number, read_bytes(in, left, "bytes of effects"));
    left -= effects.rbegin()->second.size();
  }
  return effects;
}

Card read_card(ByteReader& in) {
  return read_bytes(in, kMaxCardBytes, "bytes of a card");
}

std::string read_terms(ByteReader& in) {
  const auto bytes = in.raw(read_count(in, 1, kMaxTerms, "bytes of terms"));
  std::string terms;
  for (const std::byte byte : bytes) terms.push_back(static_cast<char>(byte));
  return terms;
}

std::vector<std::byte> read_sets(ByteReader& in) {
  return read_bytes(in, kMaxSetState, "bytes of process sets");
}

Frozen read_frozen(ByteReader& in) {
  Frozen message;
  message.epoch = in.u32();
  message.progress = read_progress(in);
  message.lost = read_member(in);
  message.reason = in.text(kMaxMemberText);
  message.applied = in.u64();
  message.forgotten = in.u64();
  message.effects = read_effects(in);
  message.card = read_card(in);
  message.at_border = read_flag(in);
  message.sets = read_sets(in);
  return message;
}

Ready read_ready(ByteReader& in) {
  Ready message;
  message.terms = read_terms(in);
  message.card = read_card(in);
  return message;
}

Synced read_synced(ByteReader& in) {
  Synced message;
  message.epoch = in.u32();
  message.text = in.text(kMaxMemberText);
  return message;
}

Leave read_leave(ByteReader& in) {
  Leave message;
  const std::uint8_t how = in.u8();
  if (how > kLeaveWithProcess) throw ProtocolError("a member leaves in the way " + std::to_string(how));
  message.failed = how == kLeaveFailed;
  message.with_process = how == kLeaveWithProcess;
  message.reason = in.text(kMaxMemberText);
  message.failure = in.text(kMaxMemberText);
  return message;
}

Report read_report(ByteReader& in) {
  Report message;
  message.epoch = in.u32();
  message.rounds = in.u64();
  message.collectives = in.u64();
  message.in_flight = in.u64();
  message.oldest = in.text(kMaxMemberText);
  return message;
}

Freeze read_freeze(ByteReader& in) {
  Freeze message;
  message.epoch = in.u32();
  message.lost = read_member(in);
  message.reason = in.text(kMaxMemberText);
  return message;
}

std::uint64_t read_difference(ByteReader& in) {
  std::uint64_t value = 0;
  for (int shift = 0;; shift += 7) {
    const std::uint8_t byte = in.u8();
    const bool is_last = (byte & 0x80) == 0;
    if ((is_last && byte == 0 && shift > 0) || (shift == 63 && byte > 1))
      throw ProtocolError("a number of a lane is not as it is written");
    value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
    if (is_last) return value >> 1 ^ ((value & 1) == 0 ? 0 : UINT64_MAX);
  }
}

Progress read_progress_like(ByteReader& in, const Progress& before) {
  Progress progress;
  for (const auto& [lane, number] : before) progress.emplace_hint(progress.end(), lane, number + read_difference(in));
  return progress;
}

bool are_lanes_equal(const Progress& one, const Progress& other) {
  return std::equal(one.begin(), one.end(), other.begin(), other.end(),
                    [](const auto& a, const auto& b) { return a.first == b.first; });
}

ProgressOf read_progress_of(ByteReader& in) {
  ProgressOf members;
  const std::uint32_t count = read_count(in, kProgressBytes, kMaxMembers, "members with progress");
  std::size_t lanes = 0;
  for (std::uint32_t i = 0; i < count; ++i) {
    const MemberId member = in.u32();
    const bool is_alike = read_flag(in);
    const Progress* before = members.empty() ? nullptr : &members.rbegin()->second;
    if (is_alike && before == nullptr) throw ProtocolError("the first member has the lanes of the one before");
    Progress progress = is_alike ? read_progress_like(in, *before) : read_progress(in);
    if (!is_alike && before != nullptr && are_lanes_equal(*before, progress))
      throw ProtocolError("the lanes of a member are written as if they were others");
    lanes += progress.size();
    if (lanes > kMaxLanesOfAll) throw ProtocolError("too many lanes of all members");
    append(members, member, std::move(progress));
  }
  return members;
}

std::vector<MemberId> read_members(ByteReader& in) {
  std::vector<MemberId> members;
  const std::uint32_t count = read_count(in, 4, kMaxMembers, "members");
  for (std::uint32_t i = 0; i < count; ++i) {
    const MemberId member = in.u32();
    if (i > 0 && member <= members.back()) throw ProtocolError("members are not in ascending order");
    members.push_back(member);
  }
  return members;
}

View read_view(ByteReader& in) {
  View message;
  message.epoch = in.u32();
  message.members = read_members(in);
  const auto secret = in.raw(message.secret.size());
  std::copy(secret.begin(), secret.end(), message.secret.begin());
  message.progress = read_progress_of(in);
  message.reason = in.text(kMaxMemberText);
  message.effects = read_effects(in);
  const std::uint32_t cards = read_count(in, kCardBytes, kMaxMembers, "cards");
  std::size_t bytes = 0;
  for (std::uint32_t i = 0; i < cards; ++i) {
    const MemberId member = in.u32();
    append(message.cards, member, read_card(in));
    bytes += message.cards.rbegin()->second.size();
    if (bytes > kMaxCardBytesOfAll) throw ProtocolError("too many bytes of cards");
  }
  message.joined = read_members(in);
  if (!std::ranges::includes(message.members, message.joined))
    throw ProtocolError("a rank that joins is not among the members");
  message.at_border = read_flag(in);
  message.sets = read_sets(in);
  return message;
}

Settle read_settle(ByteReader& in) {
  Settle message;
  message.epoch = in.u32();
  message.progress = read_progress_of(in);
  message.effects = read_effects(in);
  return message;
}

Parked read_parked(ByteReader& in) {
  Parked message;
  message.members = in.u32();
  message.needed = in.u32();
  return message;
}

MessageKind read_kind(ByteReader& in, std::size_t bytes) {
  if (bytes > kMaxMemberMessage) {
    throw ProtocolError("a message of " + std::to_string(bytes) + " bytes, at most " +
                        std::to_string(kMaxMemberMessage) + " expected");
  }
  if (const std::uint8_t version = in.u8(); version != kMemberMessageVersion) {
    throw ProtocolError("a message of version " + std::to_string(version) + ", expected " +
                        std::to_string(kMemberMessageVersion) +
                        ": horo run and the ranks must have the same version of horo");
  }
  return static_cast<MessageKind>(in.u8());
}

[[noreturn]] void refuse_kind(MessageKind kind) {
  throw ProtocolError("unknown kind of message: " + std::to_string(static_cast<int>(kind)));
}

}  // namespace

MemberMessage decode_member_message(std::span<const std::byte> bytes) {
  ByteReader in(bytes);
  MemberMessage message;
  switch (const MessageKind kind = read_kind(in, bytes.size()); kind) {
    case MessageKind::kFrozen:
      message = read_frozen(in);
      break;
    case MessageKind::kInstalled:
      message = Installed{in.u32()};
      break;
    case MessageKind::kLeave:
      message = read_leave(in);
      break;
    case MessageKind::kReport:
      message = read_report(in);
      break;
    case MessageKind::kCanGrow:
      message = CanGrow{read_terms(in)};
      break;
    case MessageKind::kReady:
      message = read_ready(in);
      break;
    case MessageKind::kSynced:
      message = read_synced(in);
      break;
    default:
      refuse_kind(kind);
  }
  in.expect_end();
  return message;
}

GuardMessage decode_guard_message(std::span<const std::byte> bytes) {
  ByteReader in(bytes);
  GuardMessage message;
  switch (const MessageKind kind = read_kind(in, bytes.size()); kind) {
    case MessageKind::kFreeze:
      message = read_freeze(in);
      break;
    case MessageKind::kView:
      message = read_view(in);
      break;
    case MessageKind::kSettle:
      message = read_settle(in);
      break;
    case MessageKind::kParked:
      message = read_parked(in);
      break;
    case MessageKind::kEvicted:
      message = Evicted{in.text(kMaxMemberText)};
      break;
    case MessageKind::kAsk:
      message = Ask{};
      break;
    case MessageKind::kDrain:
      message = Drain{in.u32()};
      break;
    case MessageKind::kMissed:
      message = Missed{read_members(in)};
      break;
    case MessageKind::kGrow:
      message = Grow{read_members(in)};
      break;
    default:
      refuse_kind(kind);
  }
  in.expect_end();
  return message;
}

}  // namespace horo
