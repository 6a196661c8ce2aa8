// The events of a simulated run in order of virtual time, and a hash of all that have happened.
#pragma once

#include <cstdint>
#include <queue>
#include <tuple>
#include <vector>

#include "elastic/messages.h"
#include "horo/base/time.h"

namespace horo::sim {

enum class EventKind : std::uint8_t {
  // Of the engine thread of a member, which may hang.
  kSubmit,          // the next collective of a stream
  kGuardMessage,    // a message of the guard has arrived; number 1: earlier, while the member did not run
  kFreezeDone,      // the lanes have stopped
  kPeerLost,        // the member sees that a peer has died or that their link has failed
  kPeerAborts,      // the member is told by a peer that the epoch ends
  kPatienceEnds,    // a peer has left and something is still in flight
  kSettled,         // the member begins to connect
  kConnected,       // to all members of the epoch
  kInstallTimeout,  // not all members of the epoch have come
  kLooksAtMissed,   // whether members that the guard misses answer
  kLeave,           // in good order: the script has ended
  kProcessEnds,
  kReady,         // a process that joins has all that it needs
  kSaysCanGrow,   // a member can go on with processes that join
  kPlace,         // the members agree on the place of a border
  kBorder,        // the growth is released: the member is at the border
  kTransferred,   // a joiner has got the state
  kTransferEnds,  // all members of the epoch have it
  // Of a lane of a member.
  kRelease,   // all participants have submitted the collectives up to a number
  kDataDone,  // of the collective with this number
  kObserved,  // a participant has everything complete up to a number
  kBarrierEnds,
  // Of the guard.
  kMemberMessage,
  kSeesStop,
  kSeesContinue,
  kSeesEnd,
  kGuardTimer,
  // Of the world.
  kFault,
  kContinue,   // the end of a stop; number 1: of a pause, which the guard does not see
  kLinkFails,  // between two members, once more
  kKill,       // the job is over
  kStarts,     // a process that may join is started; number: how often that was tried
  kRemote,     // of a RemoteDecision
};

struct SimEvent {
  EventKind kind = EventKind::kFault;
  MemberId member = 0;
  std::uint32_t epoch = 0;
  std::uint32_t lane = 0;
  std::uint64_t number = 0;  // or the stream, or a serial number
  MemberId from = 0;
};

class EventQueue {
 public:
  void push(const SimEvent& event, TimePoint at) { events_.push({at, ++serial_, event}); }
  bool is_empty() const { return events_.empty(); }
  TimePoint next_time() const { return events_.top().at; }
  SimEvent pop() {
    const Entry entry = events_.top();
    events_.pop();
    ++count_;
    const SimEvent& event = entry.event;
    for (const std::uint64_t word :
         {static_cast<std::uint64_t>(entry.at.time_since_epoch().count()), static_cast<std::uint64_t>(event.kind),
          std::uint64_t{event.member}, std::uint64_t{event.epoch}, std::uint64_t{event.lane}, event.number}) {
      trace_ = (trace_ ^ word) * 0x100000001b3U;  // FNV-1a, by words
    }
    return event;
  }
  std::uint64_t trace() const { return trace_; }
  std::uint64_t count() const { return count_; }

 private:
  struct Entry {
    TimePoint at;
    std::uint64_t serial;
    SimEvent event;
    bool operator<(const Entry& other) const { return std::tie(other.at, other.serial) < std::tie(at, serial); }
  };
  std::priority_queue<Entry> events_;
  std::uint64_t serial_ = 0;
  std::uint64_t count_ = 0;
  std::uint64_t trace_ = 0xcbf29ce484222325U;
};

}  // namespace horo::sim
