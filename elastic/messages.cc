// A message is a version, a kind, and the fields in the order of the struct. Each value has one encoding, so decode()
// can refuse everything else: flags are 0 or 1, and ids and lanes ascend.
#include "elastic/messages.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "horo/base/check.h"
#include "horo/base/error.h"
#include "horo/base/wire.h"

namespace horo {
namespace {

constexpr std::size_t kLaneBytes = 12;     // of a lane in a Progress
constexpr std::size_t kEffectBytes = 12;   // of an empty effect
constexpr std::size_t kProgressBytes = 8;  // of a member with an empty Progress

static_assert(kMaxMembers * (4 + kProgressBytes + kMaxLanes * kLaneBytes) + kMaxEffectBytes +
                      kMaxEffects * kEffectBytes + 2 * kMaxMemberText <=
                  kMaxMemberMessage,
              "the longest view");

enum class MessageKind : std::uint8_t {
  kFrozen = 1,
  kInstalled,
  kLeave,
  kFreeze,
  kView,
  kParked,
  kEvicted,
  kAsk,
  kReport,
  kSettle
};

// The largest prefix of at most kMaxMemberText bytes that does not end inside a UTF-8 character.
std::string_view cut_text(std::string_view text) {
  if (text.size() <= kMaxMemberText) return text;
  std::size_t size = kMaxMemberText;
  while (size > 0 && (static_cast<unsigned char>(text[size]) & 0xc0) == 0x80) --size;
  return text.substr(0, size);
}

void write_progress(ByteWriter& out, const Progress& progress) {
  HORO_CHECK(progress.size() <= kMaxLanes);
  out.u32(static_cast<std::uint32_t>(progress.size()));
  for (const auto& [lane, number] : progress) {
    out.u32(lane);
    out.u64(number);
  }
}

void write_effects(ByteWriter& out, const Effects& effects) {
  HORO_CHECK(effects.size() <= kMaxEffects);
  out.u32(static_cast<std::uint32_t>(effects.size()));
  for (const auto& [number, bytes] : effects) {
    out.u64(number);
    out.u32(static_cast<std::uint32_t>(bytes.size()));
    out.raw(bytes);
  }
}

void write_member(ByteWriter& out, const std::optional<MemberId>& member) {
  out.u8(member ? 1 : 0);
  if (member) out.u32(*member);
}

ByteWriter begin(MessageKind kind) {
  ByteWriter out;
  out.u8(kMemberMessageVersion);
  out.u8(static_cast<std::uint8_t>(kind));
  return out;
}

std::vector<std::byte> finish(ByteWriter out) {
  HORO_CHECK(out.bytes().size() <= kMaxMemberMessage);
  return out.take();
}

std::vector<std::byte> encode_one(const Frozen& message) {
  ByteWriter out = begin(MessageKind::kFrozen);
  out.u32(message.epoch);
  write_progress(out, message.progress);
  write_member(out, message.lost);
  out.text(cut_text(message.reason));
  out.u64(message.applied);
  out.u64(message.forgotten);
  write_effects(out, message.effects);
  return finish(std::move(out));
}

std::vector<std::byte> encode_one(const Installed& message) {
  ByteWriter out = begin(MessageKind::kInstalled);
  out.u32(message.epoch);
  return finish(std::move(out));
}

std::vector<std::byte> encode_one(const Leave& message) {
  ByteWriter out = begin(MessageKind::kLeave);
  out.u8(message.failed ? 1 : 0);
  out.text(cut_text(message.reason));
  out.text(cut_text(message.failure));
  return finish(std::move(out));
}

std::vector<std::byte> encode_one(const Report& message) {
  ByteWriter out = begin(MessageKind::kReport);
  out.u32(message.epoch);
  out.u64(message.rounds);
  out.u64(message.collectives);
  out.u64(message.in_flight);
  out.text(cut_text(message.oldest));
  return finish(std::move(out));
}

std::vector<std::byte> encode_one(const Freeze& message) {
  ByteWriter out = begin(MessageKind::kFreeze);
  out.u32(message.epoch);
  write_member(out, message.lost);
  out.text(cut_text(message.reason));
  return finish(std::move(out));
}

void write_progress_of(ByteWriter& out, const ProgressOf& members) {
  HORO_CHECK(members.size() <= kMaxMembers);
  out.u32(static_cast<std::uint32_t>(members.size()));
  for (const auto& [member, progress] : members) {
    out.u32(member);
    write_progress(out, progress);
  }
}

std::vector<std::byte> encode_one(const View& message) {
  HORO_CHECK(message.members.size() <= kMaxMembers);
  ByteWriter out = begin(MessageKind::kView);
  out.u32(message.epoch);
  out.u32(static_cast<std::uint32_t>(message.members.size()));
  for (const MemberId member : message.members) out.u32(member);
  out.raw(message.secret);
  write_progress_of(out, message.progress);
  out.text(cut_text(message.reason));
  write_effects(out, message.effects);
  return finish(std::move(out));
}

std::vector<std::byte> encode_one(const Settle& message) {
  ByteWriter out = begin(MessageKind::kSettle);
  out.u32(message.epoch);
  write_progress_of(out, message.progress);
  write_effects(out, message.effects);
  return finish(std::move(out));
}

std::vector<std::byte> encode_one(const Parked& message) {
  ByteWriter out = begin(MessageKind::kParked);
  out.u32(message.members);
  out.u32(message.needed);
  return finish(std::move(out));
}

std::vector<std::byte> encode_one(const Evicted& message) {
  ByteWriter out = begin(MessageKind::kEvicted);
  out.text(cut_text(message.reason));
  return finish(std::move(out));
}

std::vector<std::byte> encode_one(const Ask&) {
  return finish(begin(MessageKind::kAsk));
}

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
    throw ProtocolError("lanes, members or effects are not in ascending order");
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

Effects read_effects(ByteReader& in) {
  Effects effects;
  const std::uint32_t count = read_count(in, kEffectBytes, kMaxEffects, "effects");
  if (in.left() > kMaxEffectBytes + count * kEffectBytes) throw ProtocolError("the effects are too long");
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::uint64_t number = in.u64();
    const auto bytes = in.raw(in.u32());
    append(effects, number, {bytes.begin(), bytes.end()});
  }
  return effects;
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
  return message;
}

Leave read_leave(ByteReader& in) {
  Leave message;
  message.failed = read_flag(in);
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

ProgressOf read_progress_of(ByteReader& in) {
  ProgressOf members;
  const std::uint32_t count = read_count(in, kProgressBytes, kMaxMembers, "members with progress");
  for (std::uint32_t i = 0; i < count; ++i) {
    const MemberId member = in.u32();
    append(members, member, read_progress(in));
  }
  return members;
}

View read_view(ByteReader& in) {
  View message;
  message.epoch = in.u32();
  const std::uint32_t members = read_count(in, 4, kMaxMembers, "members");
  for (std::uint32_t i = 0; i < members; ++i) {
    const MemberId member = in.u32();
    if (i > 0 && member <= message.members.back()) throw ProtocolError("members are not in ascending order");
    message.members.push_back(member);
  }
  const auto secret = in.raw(message.secret.size());
  std::copy(secret.begin(), secret.end(), message.secret.begin());
  message.progress = read_progress_of(in);
  message.reason = in.text(kMaxMemberText);
  message.effects = read_effects(in);
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

std::vector<std::byte> encode(const MemberMessage& message) {
  return std::visit([](const auto& one) { return encode_one(one); }, message);
}

std::vector<std::byte> encode(const GuardMessage& message) {
  return std::visit([](const auto& one) { return encode_one(one); }, message);
}

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
    default:
      refuse_kind(kind);
  }
  in.expect_end();
  return message;
}

}  // namespace horo
