// Lamport's ring of one writer and one reader. Each side keeps its own position and the last position that it loaded
// from the peer, so a cache line moves between two cores only when a side runs out of bytes or room.
#include "ring/transport/byte_ring.h"

#include <algorithm>
#include <cstring>

namespace horo {

// A valid limit never decreases, and is at most one ring length beyond the position that the peer has seen.
void RingEnd::load_limit() noexcept {
  const std::uint64_t limit = peer_.load(std::memory_order_seq_cst) + lead_;
  if (limit < limit_ || limit - stored_ > ring_bytes_) is_damaged_.store(true, std::memory_order_relaxed);
  if (!is_damaged()) limit_ = limit;
}

template <class Copy>
std::size_t RingEnd::move(std::size_t bytes, std::size_t least, const Copy& copy) noexcept {
  std::size_t done = 0;
  while (done < bytes) {
    if (available() < std::min(bytes - done, least)) load_limit();
    const auto at = static_cast<std::size_t>(position_ % ring_bytes_);
    const auto pending = static_cast<std::size_t>(position_ - stored_);
    const std::size_t left_in_chunk = chunk_bytes_ - std::min(chunk_bytes_ - 1, pending);
    const std::size_t part = std::min({bytes - done, available(), ring_bytes_ - at, left_in_chunk});
    if (part == 0 || is_damaged()) break;
    copy(at, done, part);
    position_ += part;
    done += part;
    if (position_ - stored_ >= chunk_bytes_) store_position();
  }
  return done;
}

void RingEnd::store_position() noexcept {
  if (stored_ == position_) return;
  stored_ = position_;
  own_.store(position_, std::memory_order_seq_cst);
}

bool RingEnd::take_wake_up() noexcept {
  return peer_sleeps_.load(std::memory_order_seq_cst) != 0 && peer_sleeps_.exchange(0) != 0;
}

bool RingEnd::has(std::size_t bytes) noexcept {
  if (available() < bytes) load_limit();
  return is_damaged() || available() >= bytes;
}

bool RingEnd::prepare_sleep(std::size_t bytes) noexcept {
  sleeps_.store(1, std::memory_order_seq_cst);
  return has(bytes);
}

std::size_t RingWriter::write(std::span<const std::byte> from) noexcept {
  return move(from.size(), chunk_bytes(), [&](std::size_t at, std::size_t done, std::size_t part) {
    std::memcpy(ring_.data() + at, from.data() + done, part);
  });
}

bool RingWriter::publish() noexcept {
  store_position();
  return take_wake_up();
}

std::size_t RingReader::read(std::span<std::byte> into) noexcept {
  return move(into.size(), 1, [&](std::size_t at, std::size_t done, std::size_t part) {
    std::memcpy(into.data() + done, ring_.data() + at, part);
  });
}

// The writer is woken when half of the ring is free, not for every chunk. The reader computes the free room from the
// last position that it loaded, so the room may look larger than it is; the writer is then woken too early, once.
bool RingReader::publish() noexcept {
  store_position();
  return ring_bytes() - available() >= ring_bytes() / 2 && take_wake_up();
}

}  // namespace horo
