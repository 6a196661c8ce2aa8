// Transport: one rank's connections to all its peers. It moves tagged bytes and knows no element type.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "horo/base/counters.h"
#include "horo/base/time.h"

namespace horo {

// Names one message between two ranks. A send meets the receive with equal channel, plan and segment; equal tags meet
// in the order of posting. A differing key_hash means that the two ranks run different tensors under one plan number:
// the wait throws Mismatch, the message is dropped.
struct Tag {
  std::uint32_t channel = 0;
  std::uint64_t plan = 0;
  std::uint32_t segment = 0;
  std::uint64_t key_hash = 0;
};

// Threads: any number, but each channel belongs to one thread, which posts and waits for its operations. Memory of a
// posted operation must stay untouched until wait() returned for it, or threw.
class Transport {
 public:
  // Names a posted operation until it was waited for.
  using Op = std::uint64_t;

  virtual ~Transport() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Never block. `peer` is a world rank other than one's own; the span may be empty (a message without payload).
  virtual Op post_send(int peer, const Tag& tag, std::span<const std::byte> out) = 0;
  virtual Op post_recv(int peer, const Tag& tag, std::span<std::byte> in) = 0;

  // Returns when all of `ops` are complete, and makes progress with every peer meanwhile. Throws
  //   PeerLost  a peer is gone, the deadline passed (naming the peers still waited for), or abort() was called. Every
  //             operation of the transport has then ended: no memory is touched any more, every later call throws the
  //             same (a wait for operations that had all ended well before may still return);
  //   Mismatch  a message of the plan came with another key_hash or length, here or at another rank in it. All of the
  //             operations of that channel and plan have ended and are forgotten; the other ranks are told.
  virtual void wait(std::span<const Op> ops, TimePoint deadline) = 0;

  // Ends the transport and tells the peers best-effort: present and later calls throw PeerLost{origin, reason}, or what
  // ended it before; a wait for operations that had all ended well may still return. No memory of an operation is
  // touched after it. Any thread; may block for as long as telling takes.
  virtual void abort(int origin, const std::string& reason) noexcept = 0;

  // Tells the peers that this rank needs nothing more from them, so that its end is no loss to those who are busy with
  // others. No operation is in flight and none comes any more. Blocks a second at most. Again: no effect.
  virtual void leave() noexcept {}

  // For who waits for a peer by other ways than wait(): throws PeerLost where the transport has ended, else whether the
  // peer has left. All that it did before is visible then.
  virtual bool has_left(int /*peer*/) { return false; }

  // The first of the peers whose death shows in memory shared with them, at once and without a wait; -1: none. Any
  // thread. Waits end with PeerLost (Evidence::kDied) by themselves when there is one.
  virtual int first_dead() const noexcept { return -1; }

  // Moves what peers wait for though nobody here waits, where they need that (over MPI), and keeps idle connections
  // warm. Returns when it wants to be called again, unless messages go before that. Any thread; does not block.
  virtual TimePoint look() noexcept { return TimePoint::max(); }

  // From now on what this rank sends goes without checksums of payloads. Nothing is in flight here, and nobody waits.
  virtual void stop_checking() {}

  // Completed operations of a channel, frame headers included. Any thread.
  virtual Traffic traffic(std::uint32_t channel) const = 0;

  // Bytes that the kernel says it sent to a peer over the connection (TCP_INFO), retransmissions not counted; 0 where
  // there is no kernel in between, and over a Unix socket, which does not say.
  virtual std::uint64_t kernel_bytes_sent_to(int peer) const = 0;
  std::uint64_t kernel_bytes_sent() const {
    std::uint64_t total = 0;
    for (int peer = 0; peer < size(); ++peer) total += kernel_bytes_sent_to(peer);
    return total;
  }
};

// `size` transports of ranks that live as threads in this process. They may outlive each other.
std::vector<std::unique_ptr<Transport>> make_in_process_transports(int size);

}  // namespace horo
