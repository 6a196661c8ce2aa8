// A stream of bytes to one peer: a socket, rings in memory that both ranks share, or messages of MPI.
#pragma once

#include <poll.h>

#include <cstdint>
#include <memory>
#include <span>

#include "ring/os/socket.h"
#include "ring/shm/segment.h"

namespace horo {

class MpiWorld;

// No call blocks and none throws. Used by one thread at a time. Exception: if before_sleep() is never called with
// POLLOUT, another thread may call send() at the same time.
class Stream {
 public:
  virtual ~Stream() = default;

  virtual Moved receive(std::span<iovec> into) noexcept = 0;
  virtual Moved send(std::span<iovec> from) noexcept = 0;
  // The number of sent bytes that reach the peer only if this rank makes further calls.
  virtual std::uint64_t unsettled() noexcept { return 0; }
  // Sends the last bytes of the stream, which do not depend on further calls of this rank.
  virtual Moved send_last(std::span<iovec> from) noexcept { return send(from); }
  // The peer finds the end of the stream behind the bytes that were sent.
  virtual void end_sending() noexcept = 0;
  // Whether all sent bytes reach a live peer even if this rank closes the stream now.
  virtual bool is_delivered() const noexcept = 0;

  // To be called around a sleep in poll(). `wanted`: POLLIN, POLLOUT or both. The caller polls the result of
  // before_sleep(), without sleeping if its revents are set already. after_sleep() must follow every before_sleep(); it
  // returns the events that are ready.
  virtual pollfd before_sleep(short wanted) noexcept = 0;
  virtual short after_sleep(short revents) noexcept = 0;

  virtual int socket() const = 0;
  virtual bool is_memory() const = 0;
};

std::unique_ptr<Stream> make_socket_stream(Fd socket);

// Bytes go through the segment. The socket, whose other end the peer holds, wakes a sleeper and shows the end of the
// peer. `is_maker`: this rank created the segment. `chunk_bytes`: the peer sees bytes in chunks of this size while the
// rest is copied.
std::unique_ptr<Stream> make_shm_stream(Fd socket, ShmSegment segment, bool is_maker, std::size_t chunk_bytes);

// Bytes go through MPI. The socket, whose other end the peer holds, carries send_last() and shows the end of the peer.
std::unique_ptr<Stream> make_mpi_stream(Fd socket, const std::shared_ptr<MpiWorld>& world, int peer);

// The size of a segment for one pair, with rings of `ring_bytes` in each direction.
std::size_t shm_stream_bytes(std::size_t ring_bytes);

}  // namespace horo
