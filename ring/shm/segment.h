// Memory that ranks of one host share: an anonymous file without a name anywhere, which ends with its last holder.
#pragma once

#include <cstddef>
#include <span>

#include "ring/os/socket.h"

namespace horo {

inline constexpr std::size_t kHugePageBytes = 2 << 20;

// Mapped for the life of the object. A forked child has no mapping of it: it must not touch the memory.
class ShmSegment {
 public:
  // Zeros, all of them backed by memory, so that touching them cannot fail later. Its size is sealed. Throws
  // std::system_error that says which step failed, or std::invalid_argument: more than kMaxBytes.
  static ShmSegment create(std::size_t bytes);
  // The same with no memory behind it: populate() gets some for a part of it.
  static ShmSegment create_empty(std::size_t bytes);
  // Maps what another rank made. Throws std::system_error, or ProtocolError: its size is not sealed (a peer could take
  // the memory from under us), or not from `least_bytes` to kMaxBytes.
  static ShmSegment map(Fd file, std::size_t least_bytes);
  static ShmSegment map_empty(Fd file);

  // Backs these bytes, whole pages, with memory (huge pages where they may be had), or gives it back. populate() throws
  // std::system_error where there is none.
  void populate(std::size_t begin, std::size_t bytes);
  void vacate(std::size_t begin, std::size_t bytes) noexcept;

  ShmSegment(ShmSegment&& other) noexcept;
  ShmSegment& operator=(ShmSegment&& other) noexcept;
  ~ShmSegment();

  std::span<std::byte> memory() const { return memory_; }
  int file() const { return file_.get(); }  // until it was closed
  // Nobody else is to be given it; the mapping stays.
  void close_file() { Fd(std::move(file_)); }

  static constexpr std::size_t kMaxBytes = std::size_t{1} << 30;

 private:
  ShmSegment(Fd file, std::size_t bytes, int map_flags);
  void populate_small(std::size_t begin, std::size_t bytes);

  Fd file_;
  std::span<std::byte> memory_;
  std::uint32_t generation_ = 0;  // fork_generation() where it was mapped
};

}  // namespace horo
