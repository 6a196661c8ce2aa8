// The messages between the guard of a host and the rendezvous of a job on several hosts. The host's agent passes them
// on. docs/protocol.md has the protocol.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "elastic/job_view.h"
#include "elastic/membership.h"
#include "elastic/messages.h"

namespace horo {

inline constexpr std::uint8_t kHostMessageVersion = 103;  // never that of a packet (packets.h)
inline constexpr std::size_t kMaxHosts = 1'024;
inline constexpr std::chrono::milliseconds kLongestLimit{1'000'000'000};       // of silence and of parking
inline constexpr std::size_t kMaxHostMessage = kMaxMemberMessage + (1 << 20);  // bytes of an encoded message
inline constexpr std::size_t kMaxPastOfMember = kMaxEffectBytes + (1 << 20);   // bytes, on average over a host's
inline constexpr std::size_t kMaxStoryLine = 4'096;                            // bytes; longer lines are cut

// What all hosts have to agree on. Members are numbered by host.
struct JobSpec {
  std::vector<std::uint32_t> ranks_by_host;  // at most kMaxHosts; at most kMaxMembers in all
  std::uint32_t min_members = 1;
  std::chrono::milliseconds silence_limit{10'000};
  std::chrono::milliseconds park_timeout{60'000};
  bool operator==(const JobSpec&) const = default;

  std::uint32_t members() const;
  MemberId first_member(std::size_t host) const;
  std::size_t host_of(MemberId id) const;
};

// ---- From a guard.

using HostEvent = std::variant<MemberEnded, MemberStopped, MemberContinued, MemberDrained, MemberSent>;

// All that a guard knows of a member of its host. It tells that to each new agent and each new rendezvous.
struct MemberPast {
  MemberId id = 0;
  std::uint32_t viewed = 0;       // the epoch of the last View that was given to it
  std::vector<HostEvent> events;  // that are still true, in their order
};
struct HostPast {
  std::vector<MemberPast> members;  // of this host, ascending
  std::uint64_t told = 0;           // lines of the story that were printed here
  bool is_last = true;              // part; else the next one follows, with members of higher ids
};
using GuardSays = std::variant<HostPast, HostEvent>;

// ---- To a guard.

// A message for these members of the host, ascending.
struct SendToMembers {
  std::vector<MemberId> ids;
  std::shared_ptr<const GuardMessage> message;  // one object for all hosts that get it at one time
};
// Line `number` of the job's story; the first is 1.
struct StoryTold {
  std::uint64_t number = 0;
  std::string text;
  bool operator==(const StoryTold&) const = default;
};
// What this host needs to know of the job's state.
struct JobChanged {
  std::shared_ptr<const JobChange> change;  // one object for all hosts that get it at one time
};

using HostOrder = std::variant<SendToMembers, StoryTold, EndJob, JobChanged>;

// From the agent itself: it has no state, and needs HostPast.
struct TellPast {};
// From the agent itself: whether it has contact with the rendezvous, and why not.
struct Contact {
  bool is_there = false;
  std::string text;
};
// From the agent itself: the rendezvous has evicted this host, and refuses it from now on.
struct LockedOut {
  std::string reason;  // a sentence
};
// From the agent itself, many times in a lease: it runs.
struct Alive {};
using AgentSays = std::variant<HostOrder, TellPast, Contact, LockedOut, Alive>;

// The patience of a guard with its agent: a new one has time to register within the lease of the host.
std::chrono::milliseconds agent_patience(const JobSpec& spec);

// Decoding throws ProtocolError for anything that encode() does not write.
std::vector<std::byte> encode(const JobSpec& spec);
std::vector<std::byte> encode(const GuardSays& message);
std::vector<std::byte> encode(const AgentSays& message);
// The whole past as messages, each of at most so many bytes and those of one member.
std::vector<std::vector<std::byte>> encode_parts(const HostPast& past, std::size_t part_bytes = 4 << 20);
// What comes before encode(*order.message), of so many bytes, in the encoding of this order.
std::vector<std::byte> encode_head(const SendToMembers& order, std::size_t message_bytes);
std::vector<std::byte> encode(const JobView& view);
// Throws ProtocolError if `part` does not follow.
void append(HostPast part, HostPast& past);
JobSpec decode_job_spec(std::span<const std::byte> bytes);
GuardSays decode_guard_says(std::span<const std::byte> bytes);
AgentSays decode_agent_says(std::span<const std::byte> bytes);
JobView decode_job_view(std::span<const std::byte> bytes);

}  // namespace horo
