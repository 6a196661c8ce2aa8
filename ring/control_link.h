// ControlLink: the connections of the coordinator, a star around rank 0. They are separate from the transport, so that
// a small message never waits behind a large bucket. The engine thread always reads them, so the loss of a rank shows
// here first.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "horo/base/error.h"
#include "horo/base/time.h"

namespace horo {

struct ControlEvent {
  enum class Kind { kMessage, kLeft, kLost, kBeat, kSuspicion };
  Kind kind = Kind::kMessage;
  int from = 0;                         // the peer; kLost: the rank that was lost or gave up first (-1: not known)
  std::vector<std::byte> bytes{};       // kMessage: the message
  std::string reason{};                 // kLost, kSuspicion: what happened, as a sentence
  bool wants_answer = false;            // kBeat: the peer has work in flight (the answer was queued already)
  int about = -1;                       // kSuspicion: the suspected rank; -1: not known, which is kBroken
  Evidence evidence = Evidence::kTold;  // kSuspicion
};

// All calls by the engine thread, except wake() and abort().
class ControlLink {
 public:
  virtual ~ControlLink() = default;  // closes; without goodbye() before, the peers report this rank as lost

  // Queues a message of at most Config::max_message_bytes and writes as many bytes as the socket accepts. `to` is rank
  // 0; on rank 0 it is any other rank. Never blocks. A message to a peer that has left or is lost is dropped; wait()
  // delivers its kLeft or kLost. Throws std::invalid_argument if the message is too long.
  virtual void send(int to, std::vector<std::byte> bytes) = 0;

  // Sends every peer a heartbeat; wants_answer: each peer answers with one as soon as its engine thread calls wait().
  // Never blocks.
  virtual void beat(bool wants_answer) = 0;

  // Reports to rank 0, which can ask all ranks, that a rank seems to be lost. Not on rank 0. Never blocks.
  virtual void suspect(int about, Evidence evidence, const std::string& reason) = 0;

  // Blocks until there is an event, wake() was called or `until` is reached. Returns the events, in order of arrival
  // per peer. kLeft: the peer sent a goodbye. kLost: a connection broke, or an abort notice arrived; delivered once.
  // kBeat: a heartbeat, or part of a message that is not complete yet.
  virtual std::vector<ControlEvent> wait(TimePoint until) = 0;

  // How long a message to or from this peer is at least under way: half of the smallest round trip that the kernel has
  // seen; 0: it is not known, or the peer shares memory with this rank.
  virtual Duration way_to(int rank) const = 0;

  // From now on wait() returns, too, when this non-blocking descriptor has bytes, which it reads and drops; -1: none.
  virtual void watch(int fd) = 0;

  // Makes the present or next wait() return. Any thread; cheap if a wake-up is pending.
  virtual void wake() noexcept = 0;

  // Sends an abort notice to every connected peer, best effort; blocks 100 ms at most. Rank 0 forwards a notice that it
  // receives to the other ranks. Any thread.
  virtual void abort(int origin, const std::string& reason) noexcept = 0;

  // Leaves in good order: sends the queued messages and a goodbye, then closes for writing. Waits up to `patience`
  // until the peers that are still connected have read everything.
  virtual void goodbye(Duration patience) noexcept = 0;
};

// `size` links of ranks that are threads of this process.
std::vector<std::unique_ptr<ControlLink>> make_in_process_control_links(int size);

}  // namespace horo
