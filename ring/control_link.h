// ControlLink: the coordinator's own connections, a star around rank 0, so that a small message never stands behind a
// large bucket. It also is where a death is seen first: the engine thread always listens.
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
  int from = 0;                         // the peer; for kLost the rank that was lost or gave up first (-1: not known)
  std::vector<std::byte> bytes{};       // kMessage: the message
  std::string reason{};                 // kLost, kSuspicion: what happened, as a sentence
  bool wants_answer = false;            // kBeat: something is in flight there (the answer is on its way already)
  int about = -1;                       // kSuspicion: whom the peer suspects; of itself, whom it cannot hear any more
  Evidence evidence = Evidence::kTold;  // kSuspicion
};

// All calls by the engine thread, except wake() and abort().
class ControlLink {
 public:
  virtual ~ControlLink() = default;  // closes; whoever should hear more than a broken connection calls goodbye() first

  // Queues a message of at most Config::max_message_bytes and writes what the socket takes. `to` is rank 0, or anybody
  // for rank 0 itself. Never blocks. A message to a peer that is gone is dropped (its kLeft or kLost is or will be
  // delivered).
  virtual void send(int to, std::vector<std::byte> bytes) = 0;

  // A sign of life to every peer; wants_answer: each sends one back, as soon as its engine listens. Never blocks.
  virtual void beat(bool wants_answer) = 0;

  // Tells rank 0, who can ask everybody, that a peer seems to be lost. Not on rank 0. Never blocks.
  virtual void suspect(int about, Evidence evidence, const std::string& reason) = 0;

  // Sleeps until there is an event, wake() was called or `until` has come; returns what there is, in order of arrival
  // per peer. kLeft: the peer said goodbye. kLost: it broke off, or an abort notice came; delivered once. kBeat: a sign
  // of life, of which the link also makes one of bytes that are no whole message yet.
  virtual std::vector<ControlEvent> wait(TimePoint until) = 0;

  // Makes the present or next wait() return. Any thread; cheap when one is already pending.
  virtual void wake() noexcept = 0;

  // Sends an abort notice to every connected peer (rank 0 passes a notice that it receives on to the others by itself),
  // best effort and without blocking longer than 100 ms. Any thread.
  virtual void abort(int origin, const std::string& reason) noexcept = 0;

  // Leaves in good order: what is queued, then a goodbye, then half a close; waits up to `patience` for the other side
  // to have read it all (rank 0: for all that are still connected).
  virtual void goodbye(Duration patience) noexcept = 0;
};

// `size` links of ranks that live as threads in this process.
std::vector<std::unique_ptr<ControlLink>> make_in_process_control_links(int size);

}  // namespace horo
