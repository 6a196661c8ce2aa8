// A stream of bytes to one peer, as the transport moves them: a socket, rings in memory that both ranks see, or
// messages of MPI.
#pragma once

#include <poll.h>

#include <cstdint>
#include <memory>
#include <span>

#include "ring/os/socket.h"
#include "ring/shm/segment.h"

namespace horo {

class MpiWorld;

// Nothing blocks, nothing throws. Touched by one thread at a time; where nobody sleeps for room, send() may be another
// thread's than the rest, at the same time.
class Stream {
 public:
  virtual ~Stream() = default;

  virtual Moved receive(std::span<iovec> into) noexcept = 0;
  virtual Moved send(std::span<iovec> from) noexcept = 0;
  // How many of the sent bytes still need this rank: the others arrive, whatever it does next.
  virtual std::uint64_t unsettled() noexcept { return 0; }
  // The same for what comes after all else, and waits for nobody.
  virtual Moved send_last(std::span<iovec> from) noexcept { return send(from); }
  // The other side finds the end behind what was sent.
  virtual void end_sending() noexcept = 0;
  // What was sent reaches a peer that lives, though this end closes now.
  virtual bool is_delivered() const noexcept = 0;

  // Around a sleep in poll(). `wanted`: POLLIN, POLLOUT or both. What before_sleep() returns is to be polled; if its
  // revents are set already, without sleeping. after_sleep(), always called then, gives what there is to do.
  virtual pollfd before_sleep(short wanted) noexcept = 0;
  virtual short after_sleep(short revents) noexcept = 0;

  virtual int socket() const = 0;
  virtual bool is_memory() const = 0;
  // Bytes and room come without waking anybody: who sleeps does so for a moment only.
  virtual bool needs_looks() const { return false; }
};

std::unique_ptr<Stream> make_socket_stream(Fd socket);

// Bytes go through the segment; the socket, whose other end the peer has, wakes who sleeps and tells of a peer's end.
// `is_maker`: this rank made the segment. `chunk_bytes`: how much is passed on at a time, while the rest is copied.
std::unique_ptr<Stream> make_shm_stream(Fd socket, ShmSegment segment, bool is_maker, std::size_t chunk_bytes);

// Bytes go through MPI; the socket, whose other end the peer has, brings last words and tells of a peer's end.
std::unique_ptr<Stream> make_mpi_stream(Fd socket, const std::shared_ptr<MpiWorld>& world, int peer);

// What a segment for one pair has to hold, for `ring_bytes` on the way in each direction.
std::size_t shm_stream_bytes(std::size_t ring_bytes);

}  // namespace horo
