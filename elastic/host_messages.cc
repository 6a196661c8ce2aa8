// A message is a version, a kind, and the fields in the order of the struct. Messages of members are nested in their
// own encoding (messages.h).
#include "elastic/host_messages.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "horo/base/check.h"
#include "horo/base/error.h"
#include "horo/base/wire.h"

namespace horo {
namespace {

constexpr std::size_t kMaxEvents = 64;  // of a MemberPast

enum class Kind : std::uint8_t {
  kSpec = 1,
  kPast,
  kEnded,
  kStopped,
  kContinued,
  kSent,
  kSend,
  kStory,
  kEnd,
  kChange,
  kTellPast,
  kContact,
  kDrained,
  kJob,
  kLockedOut,
  kAlive
};

class Writer : public ByteWriter {
 public:
  void kind(Kind value) { u8(static_cast<std::uint8_t>(value)); }
  void flag(bool value) { u8(value ? 1 : 0); }
  void cut_text(const std::string& value) { text(std::string_view(value).substr(0, kMaxStoryLine)); }
  void count(std::size_t value) { u32(static_cast<std::uint32_t>(value)); }
  void blob(const std::vector<std::byte>& bytes) {
    count(bytes.size());
    raw(bytes);
  }
};

void refuse_count(std::uint32_t count, std::size_t most, const char* what) {
  if (count <= most) return;
  throw ProtocolError(std::to_string(count) + " " + what + ", at most " + std::to_string(most) + " expected");
}

class Reader : public ByteReader {
 public:
  using ByteReader::ByteReader;
  Kind kind() { return static_cast<Kind>(u8()); }
  bool flag() {
    const std::uint8_t value = u8();
    if (value > 1) throw ProtocolError("a flag is " + std::to_string(value) + ", expected 0 or 1");
    return value == 1;
  }
  std::string cut_text() { return text(kMaxStoryLine); }
  std::size_t some(std::size_t element_bytes, std::size_t most, const char* what) {
    const std::uint32_t found = count(element_bytes);
    refuse_count(found, most, what);
    return found;
  }
  std::span<const std::byte> blob() { return raw(u32()); }
};

[[noreturn]] void refuse(Kind kind) {
  throw ProtocolError("unknown kind of message: " + std::to_string(static_cast<int>(kind)));
}

Writer begin_message() {
  Writer out;
  out.u8(kHostMessageVersion);
  return out;
}

Reader begin_reading(std::span<const std::byte> bytes) {
  if (bytes.size() > kMaxHostMessage) {
    throw ProtocolError("a message of " + std::to_string(bytes.size()) + " bytes, at most " +
                        std::to_string(kMaxHostMessage) + " expected");
  }
  Reader in(bytes);
  if (const std::uint8_t version = in.u8(); version != kHostMessageVersion) {
    throw ProtocolError("a message of version " + std::to_string(version) + ", expected " +
                        std::to_string(kHostMessageVersion) + ": all hosts must have the same version of horo");
  }
  return in;
}

// ---- Events.

void write(Writer& out, const MemberEnded& event) {
  out.kind(Kind::kEnded);
  out.u32(event.id);
  out.flag(event.succeeded);
  out.cut_text(event.how);
}

void write(Writer& out, const MemberStopped& event) {
  out.kind(Kind::kStopped);
  out.u32(event.id);
}

void write(Writer& out, const MemberContinued& event) {
  out.kind(Kind::kContinued);
  out.u32(event.id);
}

void write(Writer& out, const MemberDrained& event) {
  out.kind(Kind::kDrained);
  out.u32(event.id);
}

void write(Writer& out, const MemberSent& event) {
  out.kind(Kind::kSent);
  out.u32(event.id);
  out.blob(encode(event.message));
}

void write(Writer& out, const HostEvent& event) {
  std::visit([&](const auto& one) { write(out, one); }, event);
}

HostEvent read_event(Reader& in, Kind kind) {
  const MemberId id = in.u32();
  switch (kind) {
    case Kind::kEnded: {
      const bool succeeded = in.flag();
      return MemberEnded{id, succeeded, in.cut_text()};
    }
    case Kind::kStopped:
      return MemberStopped{id};
    case Kind::kContinued:
      return MemberContinued{id};
    case Kind::kDrained:
      return MemberDrained{id};
    case Kind::kSent:
      return MemberSent{id, decode_member_message(in.blob())};
    default:
      refuse(kind);
  }
}

void write(Writer& out, const MemberPast& member) {
  HORO_CHECK(member.events.size() <= kMaxEvents);
  out.u32(member.id);
  out.u32(member.viewed);
  out.count(member.events.size());
  for (const HostEvent& event : member.events) write(out, event);
}

void write_head(Writer& out, const HostPast& past, bool is_last, std::size_t members) {
  out.kind(Kind::kPast);
  out.u64(past.told);
  out.flag(is_last);
  out.count(members);
}

void write(Writer& out, const HostPast& past) {
  write_head(out, past, past.is_last, past.members.size());
  for (const MemberPast& member : past.members) write(out, member);
}

HostPast read_past(Reader& in) {
  HostPast past;
  past.told = in.u64();
  past.is_last = in.flag();
  for (std::size_t left = in.some(12, kMaxMembers, "members"); left > 0; --left) {
    MemberPast member;
    member.id = in.u32();
    member.viewed = in.u32();
    if (!past.members.empty() && member.id <= past.members.back().id)
      throw ProtocolError("members are not in ascending order");
    for (std::size_t events = in.some(5, kMaxEvents, "events of a member"); events > 0; --events) {
      member.events.push_back(read_event(in, in.kind()));
    }
    past.members.push_back(std::move(member));
  }
  return past;
}

// ---- Orders.

void write_head(Writer& out, const SendToMembers& order, std::size_t message_bytes) {
  out.kind(Kind::kSend);
  out.count(order.ids.size());
  for (const MemberId id : order.ids) out.u32(id);
  out.count(message_bytes);
}

void write(Writer& out, const SendToMembers& order) {
  const std::vector<std::byte> message = encode(*order.message);
  write_head(out, order, message.size());
  out.raw(message);
}

void write(Writer& out, const StoryTold& order) {
  out.kind(Kind::kStory);
  out.u64(order.number);
  out.cut_text(order.text);
}

void write(Writer& out, const EndJob& order) {
  out.kind(Kind::kEnd);
  out.cut_text(order.text);
}

void write(Writer& out, const JobChanged& order) {
  out.kind(Kind::kChange);
  write(out, *order.change);
}

void write(Writer& out, const HostOrder& order) {
  std::visit([&](const auto& one) { write(out, one); }, order);
}

void write(Writer& out, const TellPast&) {
  out.kind(Kind::kTellPast);
}

void write(Writer& out, const Contact& contact) {
  out.kind(Kind::kContact);
  out.flag(contact.is_there);
  out.cut_text(contact.text);
}

void write(Writer& out, const LockedOut& message) {
  out.kind(Kind::kLockedOut);
  out.cut_text(message.reason);
}

void write(Writer& out, const Alive&) {
  out.kind(Kind::kAlive);
}

SendToMembers read_send(Reader& in) {
  SendToMembers order;
  for (std::size_t left = in.some(4, kMaxMembers, "members"); left > 0; --left) {
    const MemberId id = in.u32();
    if (!order.ids.empty() && id <= order.ids.back()) throw ProtocolError("members are not in ascending order");
    order.ids.push_back(id);
  }
  order.message = std::make_shared<const GuardMessage>(decode_guard_message(in.blob()));
  return order;
}

AgentSays read_agent_says(Reader& in) {
  switch (const Kind kind = in.kind(); kind) {
    case Kind::kSend:
      return HostOrder(read_send(in));
    case Kind::kStory: {
      const std::uint64_t number = in.u64();
      return HostOrder(StoryTold{number, in.cut_text()});
    }
    case Kind::kEnd:
      return HostOrder(EndJob{in.cut_text()});
    case Kind::kChange:
      return HostOrder(JobChanged{std::make_shared<const JobChange>(read_job_change(in))});
    case Kind::kTellPast:
      return TellPast{};
    case Kind::kContact: {
      const bool is_there = in.flag();
      return Contact{is_there, in.cut_text()};
    }
    case Kind::kLockedOut:
      return LockedOut{in.cut_text()};
    case Kind::kAlive:
      return Alive{};
    default:
      refuse(kind);
  }
}

}  // namespace

// ---- JobSpec.

std::vector<std::byte> encode(const JobSpec& spec) {
  Writer out = begin_message();
  out.kind(Kind::kSpec);
  out.count(spec.ranks_by_host.size());
  for (const std::uint32_t ranks : spec.ranks_by_host) out.u32(ranks);
  out.u32(spec.min_members);
  out.u64(static_cast<std::uint64_t>(spec.silence_limit.count()));
  out.u64(static_cast<std::uint64_t>(spec.park_timeout.count()));
  return out.take();
}

JobSpec decode_job_spec(std::span<const std::byte> bytes) {
  constexpr auto kLongest = static_cast<std::uint64_t>(kLongestLimit.count());
  Reader in = begin_reading(bytes);
  if (const Kind kind = in.kind(); kind != Kind::kSpec) refuse(kind);
  JobSpec spec;
  std::uint64_t members = 0;
  for (std::size_t left = in.some(4, kMaxHosts, "hosts"); left > 0; --left) {
    spec.ranks_by_host.push_back(in.u32());
    if (spec.ranks_by_host.back() == 0) throw ProtocolError("a host without ranks");
    members += spec.ranks_by_host.back();
  }
  spec.min_members = in.u32();
  const std::uint64_t silence = in.u64(), park = in.u64();
  in.expect_end();
  if (members == 0 || members > kMaxMembers || spec.min_members < 1 || spec.min_members > members)
    throw ProtocolError("a job of " + std::to_string(members) + " ranks, at least " + std::to_string(spec.min_members) +
                        " of them");
  if (silence < 1 || silence > kLongest || park > kLongest) throw ProtocolError("a limit of time is out of range");
  spec.silence_limit = std::chrono::milliseconds(silence);
  spec.park_timeout = std::chrono::milliseconds(park);
  return spec;
}

// ---- The others.

std::vector<std::byte> encode(const GuardSays& message) {
  Writer out = begin_message();
  std::visit([&](const auto& one) { write(out, one); }, message);
  return out.take();
}

std::vector<std::byte> encode(const AgentSays& message) {
  Writer out = begin_message();
  std::visit([&](const auto& one) { write(out, one); }, message);
  return out.take();
}

std::vector<std::vector<std::byte>> encode_parts(const HostPast& past, std::size_t part_bytes) {
  std::vector<std::vector<std::byte>> parts;
  std::vector<std::byte> body;
  std::size_t members = 0;
  const auto end_part = [&](bool is_last) {
    Writer out = begin_message();
    write_head(out, past, is_last, std::exchange(members, 0));
    out.raw(body);
    body.clear();
    parts.push_back(out.take());
  };
  for (const MemberPast& member : past.members) {
    Writer one;
    write(one, member);
    const std::vector<std::byte> bytes = one.take();
    if (members > 0 && body.size() + bytes.size() > part_bytes) end_part(false);
    body.insert(body.end(), bytes.begin(), bytes.end());
    ++members;
  }
  end_part(true);
  return parts;
}

void append(HostPast part, HostPast& past) {
  const bool is_first = past.members.empty();
  if (!is_first && (part.members.empty() || part.members.front().id <= past.members.back().id))
    throw ProtocolError("members are not in ascending order");
  std::move(part.members.begin(), part.members.end(), std::back_inserter(past.members));
  past.told = part.told;
  past.is_last = part.is_last;
}

std::vector<std::byte> encode_head(const SendToMembers& order, std::size_t message_bytes) {
  Writer out = begin_message();
  write_head(out, order, message_bytes);
  return out.take();
}

GuardSays decode_guard_says(std::span<const std::byte> bytes) {
  Reader in = begin_reading(bytes);
  const Kind kind = in.kind();
  GuardSays message = kind == Kind::kPast ? GuardSays(read_past(in)) : GuardSays(read_event(in, kind));
  in.expect_end();
  return message;
}

AgentSays decode_agent_says(std::span<const std::byte> bytes) {
  Reader in = begin_reading(bytes);
  AgentSays message = read_agent_says(in);
  in.expect_end();
  return message;
}

std::vector<std::byte> encode(const JobView& view) {
  Writer out = begin_message();
  out.kind(Kind::kJob);
  write(out, view);
  return out.take();
}

JobView decode_job_view(std::span<const std::byte> bytes) {
  Reader in = begin_reading(bytes);
  if (const Kind kind = in.kind(); kind != Kind::kJob) refuse(kind);
  JobView view = read_job_view(in);
  in.expect_end();
  return view;
}

}  // namespace horo
