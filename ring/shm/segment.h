// Memory that ranks of one host share: an anonymous file, which has no name and is freed with its last descriptor and
// mapping.
#pragma once

#include <cstddef>
#include <span>

#include "ring/os/socket.h"

namespace horo {

inline constexpr std::size_t kHugePageBytes = 2 << 20;

// Mapped for the life of the object. A forked child does not inherit the mapping and must not touch the memory.
class ShmSegment {
 public:
  // Makes a segment of zeros. All pages are backed by memory, so touching them cannot fail later; the size is sealed.
  // Throws std::system_error naming the step that failed, or std::invalid_argument for more than kMaxBytes.
  static ShmSegment create(std::size_t bytes);
  // The same, but no page is backed by memory; populate() backs a part of the segment.
  static ShmSegment create_empty(std::size_t bytes);
  // Maps a segment of another rank. Throws std::system_error, or ProtocolError if its size is not sealed (the peer
  // could truncate it while it is in use) or not between `least_bytes` and kMaxBytes.
  static ShmSegment map(Fd file, std::size_t least_bytes);
  static ShmSegment map_empty(Fd file);

  // Backs whole pages with memory, with huge pages where possible, or frees the memory. populate() throws
  // std::system_error if there is no memory.
  void populate(std::size_t begin, std::size_t bytes);
  void vacate(std::size_t begin, std::size_t bytes) noexcept;

  ShmSegment(ShmSegment&& other) noexcept;
  ShmSegment& operator=(ShmSegment&& other) noexcept;
  ~ShmSegment();

  std::span<std::byte> memory() const { return memory_; }
  int file() const { return file_.get(); }  // until close_file()
  // To be called when no other rank will be given the descriptor. The mapping stays.
  void close_file() { Fd(std::move(file_)); }

  static constexpr std::size_t kMaxBytes = std::size_t{1} << 30;

 private:
  ShmSegment(Fd file, std::size_t bytes, int map_flags);
  void populate_small(std::size_t begin, std::size_t bytes);

  Fd file_;
  std::span<std::byte> memory_;
  std::uint32_t generation_ = 0;  // fork_generation() at the time of mapping
};

}  // namespace horo
