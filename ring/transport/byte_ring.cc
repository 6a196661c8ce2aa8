// Lamport's ring of one writer and one reader. Each side keeps its own position and the last one that it saw of the
// other, so a line moves between two cores only when a side runs out of bytes or room.
#include "ring/transport/byte_ring.h"

#include <algorithm>
#include <cstring>

namespace horo {
namespace {

// A writer that sleeps is woken when this much of the ring is free, not for every chunk.
std::size_t enough(std::size_t ring_bytes) {
  return ring_bytes / 2;
}

}  // namespace

void RingWriter::look() noexcept {
  const std::uint64_t taken = words_.taken.load(std::memory_order_seq_cst);
  if (taken < taken_ || taken > published_) damaged_.store(true, std::memory_order_relaxed);
  if (!is_damaged()) taken_ = taken;
}

std::size_t RingWriter::write(std::span<const std::byte> from) noexcept {
  std::size_t done = 0;
  while (done < from.size()) {
    if (room() < std::min(from.size() - done, chunk_bytes_)) look();
    const auto at = static_cast<std::size_t>(written_ % ring_.size());
    const std::size_t pending = static_cast<std::size_t>(written_ - published_);
    const std::size_t part =
        std::min({from.size() - done, room(), ring_.size() - at, chunk_bytes_ - std::min(chunk_bytes_ - 1, pending)});
    if (part == 0 || is_damaged()) break;
    std::memcpy(ring_.data() + at, from.data() + done, part);
    written_ += part;
    done += part;
    if (written_ - published_ >= chunk_bytes_) publish();
  }
  return done;
}

void RingWriter::publish() noexcept {
  published_ = written_;
  words_.written.store(written_, std::memory_order_seq_cst);
}

bool RingWriter::pass_on() noexcept {
  if (published_ != written_) publish();
  return words_.reader_sleeps.load(std::memory_order_seq_cst) != 0 && words_.reader_sleeps.exchange(0) != 0;
}

bool RingWriter::has_room() noexcept {
  if (room() < enough(ring_.size())) look();
  return is_damaged() || room() >= enough(ring_.size());
}

bool RingWriter::prepare_sleep() noexcept {
  words_.writer_sleeps.store(1, std::memory_order_seq_cst);
  return has_room();
}

void RingReader::look() noexcept {
  const std::uint64_t written = words_.written.load(std::memory_order_seq_cst);
  if (written < written_ || written - published_ > ring_.size()) damaged_.store(true, std::memory_order_relaxed);
  if (!is_damaged()) written_ = written;
}

std::size_t RingReader::read(std::span<std::byte> into) noexcept {
  std::size_t done = 0;
  while (done < into.size()) {
    if (written_ == taken_) look();
    const auto at = static_cast<std::size_t>(taken_ % ring_.size());
    const std::size_t pending = static_cast<std::size_t>(taken_ - published_);
    const std::size_t part = std::min({into.size() - done, static_cast<std::size_t>(written_ - taken_),
                                       ring_.size() - at, chunk_bytes_ - std::min(chunk_bytes_ - 1, pending)});
    if (part == 0 || is_damaged()) break;
    std::memcpy(into.data() + done, ring_.data() + at, part);
    taken_ += part;
    done += part;
    if (taken_ - published_ >= chunk_bytes_) publish();
  }
  return done;
}

void RingReader::publish() noexcept {
  published_ = taken_;
  words_.taken.store(taken_, std::memory_order_seq_cst);
}

// What the writer added since we looked makes room look larger here than it is: then it is woken too early, once.
bool RingReader::pass_on() noexcept {
  if (published_ != taken_) publish();
  if (ring_.size() - static_cast<std::size_t>(written_ - taken_) < enough(ring_.size())) return false;
  return words_.writer_sleeps.load(std::memory_order_seq_cst) != 0 && words_.writer_sleeps.exchange(0) != 0;
}

bool RingReader::has_bytes() noexcept {
  if (written_ == taken_) look();
  return is_damaged() || written_ != taken_;
}

bool RingReader::prepare_sleep() noexcept {
  words_.reader_sleeps.store(1, std::memory_order_seq_cst);
  return has_bytes();
}

}  // namespace horo
