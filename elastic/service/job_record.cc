#include "elastic/service/job_record.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "horo/base/error.h"
#include "horo/base/wire.h"

namespace horo {
namespace {

constexpr std::uint32_t kRecordVersion = 4;
constexpr std::size_t kMaxDetail = 4'096;  // bytes
constexpr std::size_t kMaxEvictedText = 8'192;
constexpr std::size_t kMaxLines = 1'000;
constexpr std::size_t kMaxEndText = 64 << 10;  // bytes: it may name each rank

void write_blob(ByteWriter& out, const std::vector<std::byte>& bytes) {
  out.u32(static_cast<std::uint32_t>(bytes.size()));
  out.raw(bytes);
}

using BrokenPairs = std::map<std::pair<std::uint32_t, std::uint32_t>, int>;

void write_pairs(ByteWriter& out, const BrokenPairs& pairs) {
  out.u32(static_cast<std::uint32_t>(pairs.size()));
  for (const auto& [pair, count] : pairs) {
    out.u32(pair.first);
    out.u32(pair.second);
    out.u8(static_cast<std::uint8_t>(std::min(count, 255)));
  }
}

BrokenPairs read_pairs(ByteReader& in) {
  BrokenPairs pairs;
  for (std::uint32_t left = in.count(9); left > 0; --left) {
    const std::uint32_t first = in.u32(), second = in.u32();
    const std::pair pair(first, second);
    const int count = in.u8();
    const bool is_next = pairs.empty() || pairs.rbegin()->first < pair;
    if (first >= second || count == 0 || !is_next) throw ProtocolError("a pair that is none");
    pairs.emplace(pair, count);
  }
  return pairs;
}

void write_story(ByteWriter& out, const std::vector<StoryTold>& story) {
  out.u32(static_cast<std::uint32_t>(story.size()));
  for (const StoryTold& line : story) {
    out.u64(line.number);
    out.text(std::string_view(line.text).substr(0, kMaxStoryLine));
  }
}

std::vector<StoryTold> read_story(ByteReader& in) {
  std::vector<StoryTold> story;
  const std::uint32_t count = in.count(12);
  if (count > kMaxLines) throw ProtocolError("a record with too long a story");
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::uint64_t number = in.u64();
    if (!story.empty() && number <= story.back().number) throw ProtocolError("a story out of order");
    story.push_back({number, in.text(kMaxStoryLine)});
  }
  return story;
}

void write_membership(ByteWriter& out, const MembershipSnapshot& membership) {
  out.u32(static_cast<std::uint32_t>(membership.members.size()));
  for (const auto& member : membership.members) {
    out.u8(static_cast<std::uint8_t>(member.presence));
    out.text(std::string_view(member.detail).substr(0, kMaxDetail));
    out.text(std::string_view(member.failure).substr(0, kMaxDetail));
  }
  write_blob(out, encode(GuardMessage(membership.view)));
  write_blob(out, membership.settled ? encode(GuardMessage(*membership.settled)) : std::vector<std::byte>{});
  out.u8(membership.end ? 1 : 0);
  if (membership.end) out.text(std::string_view(*membership.end).substr(0, kMaxEndText));
  write_pairs(out, membership.broken_pairs);
  write_pairs(out, membership.broken_hosts);
}

MembershipSnapshot read_membership(ByteReader& in) {
  using Presence = MembershipSnapshot::Presence;
  MembershipSnapshot membership;
  for (std::uint32_t left = in.count(9); left > 0; --left) {
    const std::uint8_t presence = in.u8();
    if (presence > static_cast<std::uint8_t>(Presence::kEvicted)) throw ProtocolError("a member without a state");
    std::string detail = in.text(kMaxDetail);
    membership.members.push_back({static_cast<Presence>(presence), std::move(detail), in.text(kMaxDetail)});
  }
  GuardMessage message = decode_guard_message(in.raw(in.u32()));
  auto* view = std::get_if<View>(&message);
  if (view == nullptr) throw ProtocolError("a record without a view");
  membership.view = std::move(*view);
  if (const auto bytes = in.raw(in.u32()); !bytes.empty()) {
    GuardMessage sent = decode_guard_message(bytes);
    auto* settle = std::get_if<Settle>(&sent);
    if (settle == nullptr) throw ProtocolError("a record with another message than Settle");
    membership.settled = std::move(*settle);
  }
  const std::uint8_t ended = in.u8();
  if (ended > 1) throw ProtocolError("the record does not fit its job");
  if (ended == 1) membership.end = in.text(kMaxEndText);
  membership.broken_pairs = read_pairs(in);
  membership.broken_hosts = read_pairs(in);
  return membership;
}

void write_hosts(ByteWriter& out, const std::map<std::uint32_t, std::uint64_t>& incarnations) {
  out.u32(static_cast<std::uint32_t>(incarnations.size()));
  for (const auto& [host, incarnation] : incarnations) {
    out.u32(host);
    out.u64(incarnation);
  }
}

std::map<std::uint32_t, std::uint64_t> read_hosts(ByteReader& in, const JobSpec& spec) {
  std::map<std::uint32_t, std::uint64_t> incarnations;
  for (std::uint32_t left = in.count(12); left > 0; --left) {
    const std::uint32_t host = in.u32();
    const bool is_next = incarnations.empty() || host > incarnations.rbegin()->first;
    if (host >= spec.ranks_by_host.size() || !is_next) throw ProtocolError("a host that the job does not have");
    incarnations.emplace(host, in.u64());
  }
  return incarnations;
}

}  // namespace

std::vector<std::byte> encode(const JobRecord& record) {
  ByteWriter out;
  out.u32(kRecordVersion);
  out.u64(record.term);
  write_blob(out, encode(record.spec));
  write_hosts(out, record.incarnations);
  write_hosts(out, record.expected);
  out.u32(static_cast<std::uint32_t>(record.ended.size()));
  for (const std::uint64_t incarnation : record.ended) out.u64(incarnation);
  out.u32(static_cast<std::uint32_t>(record.evicted.size()));
  for (const auto& [host, text] : record.evicted) {
    out.u32(host);
    out.text(std::string_view(text).substr(0, kMaxEvictedText));
  }
  write_membership(out, record.membership);
  write_story(out, record.story);
  out.u8(record.is_over ? 1 : 0);
  return out.take();
}

JobRecord decode_job_record(std::span<const std::byte> bytes) {
  ByteReader in(bytes);
  if (const std::uint32_t version = in.u32(); version != kRecordVersion) {
    throw ProtocolError("the record has version " + std::to_string(version) + ", expected " +
                        std::to_string(kRecordVersion));
  }
  JobRecord record;
  record.term = in.u64();
  record.spec = decode_job_spec(in.raw(in.u32()));
  record.incarnations = read_hosts(in, record.spec);
  record.expected = read_hosts(in, record.spec);
  for (std::uint32_t left = in.count(8); left > 0; --left) record.ended.push_back(in.u64());
  for (std::uint32_t left = in.count(8); left > 0; --left) {
    const std::uint32_t host = in.u32();
    if (!record.incarnations.contains(host) || !record.evicted.emplace(host, in.text(kMaxEvictedText)).second)
      throw ProtocolError("an evicted host that the job does not have");
  }
  record.membership = read_membership(in);
  record.story = read_story(in);
  const std::uint8_t over = in.u8();
  in.expect_end();
  if (over > 1 || record.membership.members.size() != record.spec.members())
    throw ProtocolError("the record does not fit its job");
  record.is_over = over == 1;
  return record;
}

}  // namespace horo
