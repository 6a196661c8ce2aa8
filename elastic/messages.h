// The messages between a member of an elastic job and the guard of its host, and the view, which names the members
// of an epoch. docs/protocol.md has the protocol.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "horo/base/auth.h"

namespace horo {

// A process that takes part in the job: its rank in the first epoch, or the next free number for a process that was
// started later. Never given to another process.
using MemberId = std::uint32_t;

inline constexpr std::size_t kMaxMemberText = 2'048;        // bytes; longer texts are cut
inline constexpr std::size_t kMaxMemberMessage = 32 << 20;  // bytes of an encoded message
inline constexpr std::uint8_t kMemberMessageVersion = 6;
inline constexpr std::size_t kMaxMembers = 8'192;           // of a job, those included that have joined
inline constexpr std::size_t kMaxLanes = 1'024;             // of one member
inline constexpr std::size_t kMaxLanesOfAll = 1'024 << 10;  // in a View or a Settle

// The progress of a lane: the collectives of a process set (lane: its number), or messages (kMessageLane).
inline constexpr std::uint32_t kMessageLane = UINT32_MAX;
using Progress = std::map<std::uint32_t, std::uint64_t>;  // lane: number of the last collective that is complete here

using ProgressOf = std::map<MemberId, Progress>;

// What the ordered stream of the leader changed, besides running collectives: process sets, joins, failures. By number
// of the message of the stream, encoded by the coordinator (StreamEffects in controller/coordinator.h).
using Effects = std::map<std::uint64_t, std::vector<std::byte>>;
inline constexpr std::size_t kMaxEffects = 4'096;
inline constexpr std::size_t kMaxEffectBytes = 8 << 20;  // of all of a member

// How the other members of the next epoch connect to a member: what its Door (ring/links.h) gives them.
using Card = std::vector<std::byte>;
inline constexpr std::size_t kMaxCardBytes = 4'096;
inline constexpr std::size_t kMaxCardBytesOfAll = 8 << 20;  // in a View

// What the processes that join must have as the members have it: lines "name=value".
inline constexpr std::size_t kMaxTerms = 1 << 20;     // bytes
inline constexpr std::size_t kMaxSetState = 1 << 20;  // bytes of the process sets that a joiner gets

// ---- From a member to the guard.

// The member has stopped the lanes of this epoch and delivers nothing more in it: its progress is final.
struct Frozen {
  std::uint32_t epoch = 0;
  Progress progress;
  std::optional<MemberId> lost;  // the member that it misses, if it knows
  std::string reason;            // what it saw, as a sentence
  std::uint64_t applied = 0;     // messages of the stream
  std::uint64_t forgotten = 0;   // the effects of so many of the first of them are not among `effects`
  Effects effects = {};          // of the others
  Card card = {};                // of this member, in the next epoch
  // The member has left the epoch in good order, at the release of a growth: there, all members that say so are at one
  // place of the stream. With it, its process sets as joiners need them, equal on all members.
  bool at_border = false;
  std::vector<std::byte> sets = {};
  bool operator==(const Frozen&) const = default;
};
// The member runs in this epoch.
struct Installed {
  std::uint32_t epoch = 0;
  bool operator==(const Installed&) const = default;
};
// The member takes part no more: its script has ended, or failed with this text. Its process ends soon. The reason of a
// script that knew of its notice is kDrained. A member that leaves with its process has not said that its part is done:
// the exit code tells that (Exits).
inline constexpr const char* kDrained = "drained";
struct Leave {
  bool failed = false;
  std::string reason;
  std::string failure = {};   // its kind and place, equal on members that fail alike; empty: not known
  bool with_process = false;  // never with `failed`
  bool operator==(const Leave&) const = default;
};
// The answer to Ask. The numbers are sums over all epochs of the member's session.
struct Report {
  std::uint32_t epoch = 0;        // the last one that it runs or ran in
  std::uint64_t rounds = 0;       // backward passes that are committed
  std::uint64_t collectives = 0;  // whose results are committed, those of the rounds included
  std::uint64_t in_flight = 0;    // tensors
  std::string oldest;             // the name of the one in flight that was submitted first; empty: none, or no name
  bool operator==(const Report&) const = default;
};
// The script of this member can go on with ranks that join, if these have the same terms. The last one counts; without
// terms it cannot any more.
struct CanGrow {
  std::string terms;
  bool operator==(const CanGrow&) const = default;
};
// A process that was started later has all that it needs before the others stop. Sent again when its card changes.
struct Ready {
  std::string terms;
  Card card = {};
  bool operator==(const Ready&) const = default;
};
// A member that has joined has the state of the others. The text is for the story: "256 MiB from ranks 0 to 3 in 41
// ms".
struct Synced {
  std::uint32_t epoch = 0;
  std::string text = {};
  bool operator==(const Synced&) const = default;
};
using MemberMessage = std::variant<Frozen, Installed, Leave, Report, CanGrow, Ready, Synced>;

// ---- From the guard to a member.

// The epoch ends: freeze, if that has not happened, and answer with Frozen.
struct Freeze {
  std::uint32_t epoch = 0;
  std::optional<MemberId> lost;
  std::string reason;
  bool operator==(const Freeze&) const = default;
};
// The members of an epoch, and what the survivors of the last one had complete. A collective of the last epoch counts
// as done if every survivor that has its lane has it complete; everything else runs again among the new members.
struct View {
  std::uint32_t epoch = 0;
  std::vector<MemberId> members;  // by rank in this epoch; ascending
  JobKey secret{};                // of the connections of this epoch; drawn anew for each, and never stored
  ProgressOf progress;            // of the members that froze in the last epoch and are in this one
  std::string reason;             // why the last epoch ended, as a sentence
  Effects effects = {};  // that some member has applied in the last epoch, and some member has not: it does so now
  std::map<MemberId, Card> cards = {};  // of the members
  std::vector<MemberId> joined = {};    // of the members: those that were in no epoch before; ascending
  // All members that go on have left the last epoch at its border: their request for the growth is done. Else it is in
  // flight on all of them, and runs again.
  bool at_border = false;
  std::vector<std::byte> sets = {};  // the process sets, for those that have joined; empty if none has
  bool operator==(const View&) const = default;
};
// What the members that are frozen in this epoch had complete: they deliver now what is done, and stay frozen. The View
// that may follow delivers nothing more. At most one per epoch.
struct Settle {
  std::uint32_t epoch = 0;
  ProgressOf progress;
  Effects effects = {};  // see View
  bool operator==(const Settle&) const = default;
};
// Without members that are silent too few are left: this one stays frozen until they are back, or the job ends.
struct Parked {
  std::uint32_t members = 0;
  std::uint32_t needed = 0;
  bool operator==(const Parked&) const = default;
};
// The receiver is no member any more: its works fail with this text.
struct Evicted {
  std::string reason;
  bool operator==(const Evicted&) const = default;
};
// A person asks for the state of the job: answer with Report. There is one at a time for each member.
struct Ask {
  bool operator==(const Ask&) const = default;
};
// The notice: the host of the member is drained. The member goes on until it can leave in good order, and is ended when
// the grace is over.
struct Drain {
  std::uint32_t grace_ms = 0;
  bool operator==(const Drain&) const = default;
};
// These other members of the epoch, and no others, are not heard any more: they are stopped, or their host is silent. A
// member that waits for one of them, and does not hear it either, freezes and names it.
struct Missed {
  std::vector<MemberId> members;  // ascending
  bool operator==(const Missed&) const = default;
};
// These processes are ready to join, and no others: the members are to come to a border at a place of the stream that
// they agree on.
struct Grow {
  std::vector<MemberId> joiners;  // ascending
  bool operator==(const Grow&) const = default;
};
using GuardMessage = std::variant<Freeze, View, Settle, Parked, Evicted, Ask, Drain, Missed, Grow>;

// Whether a message with these stays within the limits of all members.
bool fits(const ProgressOf& progress, const std::map<MemberId, Card>& cards);

// Encoding cuts texts. Decoding throws ProtocolError for anything that encode() does not write.
std::vector<std::byte> encode(const MemberMessage& message);
std::vector<std::byte> encode(const GuardMessage& message);
MemberMessage decode_member_message(std::span<const std::byte> bytes);
GuardMessage decode_guard_message(std::span<const std::byte> bytes);

}  // namespace horo
