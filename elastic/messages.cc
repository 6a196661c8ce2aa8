// A message is a version, a kind, and the fields in the order of the struct. Each value has one encoding, so decode()
// can refuse everything else: flags are 0 or 1, and ids and lanes ascend. messages_decode.cc reads them.
//
// The progress of several members: the first one's as it is. A later one that has the same lanes as the one before is
// written as the differences of the numbers, as zigzag varints: most members have run the same, within a few.
#include "elastic/messages.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "elastic/message_kind.h"
#include "horo/base/check.h"
#include "horo/base/wire.h"

namespace horo {
namespace {

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

void write_bytes(ByteWriter& out, std::span<const std::byte> bytes) {
  out.u32(static_cast<std::uint32_t>(bytes.size()));
  out.raw(bytes);
}

void write_effects(ByteWriter& out, const Effects& effects) {
  HORO_CHECK(effects.size() <= kMaxEffects);
  out.u32(static_cast<std::uint32_t>(effects.size()));
  for (const auto& [number, bytes] : effects) {
    out.u64(number);
    write_bytes(out, bytes);
  }
}

void write_card(ByteWriter& out, const Card& card) {
  HORO_CHECK(card.size() <= kMaxCardBytes);
  write_bytes(out, card);
}

void write_terms(ByteWriter& out, const std::string& terms) {
  HORO_CHECK(terms.size() <= kMaxTerms);
  write_bytes(out, std::as_bytes(std::span(terms)));
}

void write_sets(ByteWriter& out, bool at_border, const std::vector<std::byte>& sets) {
  HORO_CHECK(sets.size() <= kMaxSetState);
  out.u8(at_border ? 1 : 0);
  write_bytes(out, sets);
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
  write_card(out, message.card);
  write_sets(out, message.at_border, message.sets);
  return finish(std::move(out));
}

std::vector<std::byte> encode_one(const Installed& message) {
  ByteWriter out = begin(MessageKind::kInstalled);
  out.u32(message.epoch);
  return finish(std::move(out));
}

std::vector<std::byte> encode_one(const Leave& message) {
  ByteWriter out = begin(MessageKind::kLeave);
  out.u8(message.failed ? kLeaveFailed : message.with_process ? kLeaveWithProcess : kLeaveDone);
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

std::vector<std::byte> encode_one(const CanGrow& message) {
  ByteWriter out = begin(MessageKind::kCanGrow);
  write_terms(out, message.terms);
  return finish(std::move(out));
}

std::vector<std::byte> encode_one(const Ready& message) {
  ByteWriter out = begin(MessageKind::kReady);
  write_terms(out, message.terms);
  write_card(out, message.card);
  return finish(std::move(out));
}

std::vector<std::byte> encode_one(const Synced& message) {
  ByteWriter out = begin(MessageKind::kSynced);
  out.u32(message.epoch);
  out.text(cut_text(message.text));
  return finish(std::move(out));
}

std::vector<std::byte> encode_one(const Freeze& message) {
  ByteWriter out = begin(MessageKind::kFreeze);
  out.u32(message.epoch);
  write_member(out, message.lost);
  out.text(cut_text(message.reason));
  return finish(std::move(out));
}

bool has_same_lanes(const Progress& one, const Progress& other) {
  return std::equal(one.begin(), one.end(), other.begin(), other.end(),
                    [](const auto& a, const auto& b) { return a.first == b.first; });
}

void write_difference(ByteWriter& out, std::uint64_t from, std::uint64_t to) {
  const std::uint64_t difference = to - from;
  std::uint64_t left = difference << 1 ^ (difference >> 63 == 0 ? 0 : UINT64_MAX);
  for (; left >= 0x80; left >>= 7) out.u8(static_cast<std::uint8_t>((left & 0x7f) | 0x80));
  out.u8(static_cast<std::uint8_t>(left));
}

void write_progress_of(ByteWriter& out, const ProgressOf& members) {
  HORO_CHECK(members.size() <= kMaxMembers && fits(members, {}));
  out.u32(static_cast<std::uint32_t>(members.size()));
  const Progress* before = nullptr;
  for (const auto& [member, progress] : members) {
    out.u32(member);
    const bool is_alike = before != nullptr && has_same_lanes(*before, progress);
    out.u8(is_alike ? 1 : 0);
    if (is_alike) {
      auto other = before->begin();
      for (const auto& [lane, number] : progress) write_difference(out, (other++)->second, number);
    } else {
      write_progress(out, progress);
    }
    before = &progress;
  }
}

void write_members(ByteWriter& out, const std::vector<MemberId>& members) {
  out.u32(static_cast<std::uint32_t>(members.size()));
  for (const MemberId member : members) out.u32(member);
}

std::vector<std::byte> encode_one(const View& message) {
  HORO_CHECK(message.members.size() <= kMaxMembers);
  HORO_CHECK(std::ranges::includes(message.members, message.joined));
  ByteWriter out = begin(MessageKind::kView);
  out.u32(message.epoch);
  write_members(out, message.members);
  out.raw(message.secret);
  write_progress_of(out, message.progress);
  out.text(cut_text(message.reason));
  write_effects(out, message.effects);
  HORO_CHECK(message.cards.size() <= kMaxMembers && fits({}, message.cards));
  out.u32(static_cast<std::uint32_t>(message.cards.size()));
  for (const auto& [member, card] : message.cards) {
    out.u32(member);
    write_card(out, card);
  }
  write_members(out, message.joined);
  write_sets(out, message.at_border, message.sets);
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

std::vector<std::byte> encode_one(const Drain& message) {
  ByteWriter out = begin(MessageKind::kDrain);
  out.u32(message.grace_ms);
  return finish(std::move(out));
}

std::vector<std::byte> encode_one(const Missed& message) {
  ByteWriter out = begin(MessageKind::kMissed);
  write_members(out, message.members);
  return finish(std::move(out));
}

std::vector<std::byte> encode_one(const Grow& message) {
  HORO_CHECK(message.joiners.size() <= kMaxMembers);
  ByteWriter out = begin(MessageKind::kGrow);
  write_members(out, message.joiners);
  return finish(std::move(out));
}

}  // namespace

bool fits(const ProgressOf& progress, const std::map<MemberId, Card>& cards) {
  std::size_t lanes = 0, bytes = 0;
  for (const auto& [member, one] : progress) lanes += one.size();
  for (const auto& [member, card] : cards) bytes += card.size();
  return lanes <= kMaxLanesOfAll && bytes <= kMaxCardBytesOfAll;
}

std::vector<std::byte> encode(const MemberMessage& message) {
  return std::visit([](const auto& one) { return encode_one(one); }, message);
}

std::vector<std::byte> encode(const GuardMessage& message) {
  return std::visit([](const auto& one) { return encode_one(one); }, message);
}

}  // namespace horo
