// Transport: the connections of one rank to all its peers. It moves tagged messages of bytes.
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

// Identifies one message between two ranks. A send matches the receive with equal channel, plan and segment; sends and
// receives with equal tags match in the order of posting. If the key_hash of the two differs, the ranks run different
// tensors under one plan number: the wait throws Mismatch and the message is dropped.
struct Tag {
  std::uint32_t channel = 0;
  std::uint64_t plan = 0;
  std::uint32_t segment = 0;
  std::uint64_t key_hash = 0;
};

// Threads: any number, but each channel belongs to one thread, which posts its operations and waits for them. The
// memory of a posted operation must stay valid and unchanged until wait() has returned for it, or has thrown.
class Transport {
 public:
  // Identifies a posted operation until wait() has returned for it.
  using Op = std::uint64_t;

  virtual ~Transport() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Never block. `peer` is a world rank other than rank(); the span may be empty (a message without payload). Throw
  // PeerLost if the transport has ended.
  virtual Op post_send(int peer, const Tag& tag, std::span<const std::byte> out) = 0;
  virtual Op post_recv(int peer, const Tag& tag, std::span<std::byte> in) = 0;

  // Blocks until all of `ops` are complete; makes progress with every peer meanwhile. Throws
  //   PeerLost  a peer was lost, the deadline has passed (naming the peers that are late), or abort() was called. All
  //             operations of the transport have ended and their memory is no longer used. Every later call throws the
  //             same error (a wait for operations that were all complete before may still return);
  //   Mismatch  a message of the plan had another key_hash or length, at this rank or at another rank of the plan. All
  //             operations of that channel and plan have ended and are forgotten. The other ranks get a notice.
  virtual void wait(std::span<const Op> ops, TimePoint deadline) = 0;

  // Ends the transport and sends the peers an abort notice, best effort. Present and later calls throw
  // PeerLost{origin, reason}, or the error that ended the transport before; a wait for operations that were all
  // complete may still return. After the return no memory of an operation is used. Any thread; blocks while the notices
  // are sent, 50 ms at most.
  virtual void abort(int origin, const std::string& reason) noexcept = 0;

  // Sends the peers a goodbye: this rank needs nothing more from them, so a peer that still works with others does not
  // report it as lost. No operation is in flight and none is posted later. Blocks a second at most. A second call has
  // no effect.
  virtual void leave() noexcept {}

  // Returns whether the peer has left, for a thread that waits for the peer in shared memory and not in wait(). If so,
  // all stores of the peer before that are visible. Throws PeerLost if the transport has ended.
  virtual bool has_left(int /*peer*/) { return false; }

  // The first peer whose death shows in memory shared with it; -1: none. Does not block. Any thread. When there is one,
  // waits throw PeerLost (Evidence::kDied).
  virtual int first_dead() const noexcept { return -1; }

  // Periodic work outside of wait(): over MPI it makes progress for messages that peers wait for; over TCP it keeps
  // idle connections warm (HORO_TCP_KEEP_WARM_MS). Returns the time of the next call, if no message is sent before.
  // Does not block. Any thread.
  virtual TimePoint tick() noexcept { return TimePoint::max(); }

  // Payloads that are sent from now on carry no checksum. No operation is in flight, and no thread waits.
  virtual void stop_checksums() {}

  // Completed operations of a channel, frame headers included. Any thread.
  virtual Traffic traffic(std::uint32_t channel) const = 0;

  // Bytes that the kernel has sent to a peer (TCP_INFO), without retransmissions; 0 for shared memory, MPI and Unix
  // sockets.
  virtual std::uint64_t kernel_bytes_sent_to(int peer) const = 0;
  std::uint64_t kernel_bytes_sent() const {
    std::uint64_t total = 0;
    for (int peer = 0; peer < size(); ++peer) total += kernel_bytes_sent_to(peer);
    return total;
  }
};

// `size` transports of ranks that are threads of this process. Their lifetimes are independent.
std::vector<std::unique_ptr<Transport>> make_in_process_transports(int size);

}  // namespace horo
