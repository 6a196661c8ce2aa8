// ArrivalFlag: the cache line by which a member announces in shared memory that it has arrived at a sync point, and the
// loads and stores that act on it (see ShmSync for the protocol).
//
// The time of a small collective is that of its cache-line transfers: a line that another core has written takes 40 to
// 200 ns to fetch. The functions below ensure that each line is transferred once:
//
//   one line     A flag holds the sync point, the signature and up to 24 bytes of payload. The polling member needs no
//                other line.
//   load fence   Before each poll the core completes all earlier instructions. Without the fence the core loads
//                speculatively, before its own flag is stored and several polls at a time. Such a load takes the line
//                from the member that is about to write it, and that member has to fetch it back. The fence takes an
//                all_reduce of 8 bytes from 0.088 to 0.054 us.
//   prefetch     The line that a member writes next is in the cache of its last reader. The member fetches it back with
//                a dummy store while it waits for other members. (A prefetch instruction for writing has no effect on a
//                line that other cores have read.)
//   single words A flag is read and written as relaxed atomic words, which the compiler must not merge. If words were
//                stored one by one, a vector load of them stalls until these stores have left the store buffer.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "horo/base/types.h"

namespace horo {

inline constexpr std::size_t kCacheLineBytes = 64;
inline constexpr std::size_t kFlagPayloadBytes = 24;

// The properties of a collective that must be equal on all members that arrive at a sync point.
struct SyncSignature {
  std::uint64_t plan = 0;
  std::uint64_t key_hash = 0;
  std::uint64_t shape = 0;  // result of signature_shape()
  std::uint64_t bytes = 0;
  bool operator==(const SyncSignature&) const = default;
};

// Kind, dtype and op are the first three bytes. The other five are a part of `hash`, which covers all other properties
// that must be equal.
inline std::uint64_t signature_shape(CollectiveKind kind, DType dtype, ReduceOp op, std::uint64_t hash) {
  const auto byte = [](auto value, int at) { return static_cast<std::uint64_t>(value) << (56 - 8 * at); };
  return byte(kind, 0) | byte(dtype, 1) | byte(op, 2) | (hash >> 24);
}
inline int kind_in_shape(std::uint64_t shape) {
  return static_cast<int>(shape >> 56);
}

// One writer, the member that owns it; any number of readers. Everything but `sync_point` may be read once `sync_point`
// was loaded with acquire, until its owner overwrites the flag.
struct alignas(kCacheLineBytes) ArrivalFlag {
  std::atomic<std::uint64_t> sync_point;  // the last one that the owner announced here; stored last, with release
  std::atomic<std::uint64_t> plan, key_hash, shape, bytes;
  struct Offsets {
    std::uint64_t in, out;
  };
  union {
    std::byte payload[kFlagPayloadBytes];  // of collectives with few bytes
    Offsets offsets;                       // of the buffers in the owner's arena, for all others
  };
};
static_assert(sizeof(ArrivalFlag) == kCacheLineBytes);

// Publishes the flag and its payload, which were written before.
inline void store_flag(ArrivalFlag& flag, std::uint64_t sync_point, const SyncSignature& signature) noexcept {
  flag.plan.store(signature.plan, std::memory_order_relaxed);
  flag.key_hash.store(signature.key_hash, std::memory_order_relaxed);
  flag.shape.store(signature.shape, std::memory_order_relaxed);
  flag.bytes.store(signature.bytes, std::memory_order_relaxed);
  flag.sync_point.store(sync_point, std::memory_order_release);
}

// Loads the flag's sync point with acquire: writes of the owner before its store of the flag are visible afterwards.
inline std::uint64_t load_flag(const ArrivalFlag& flag) noexcept {
  return flag.sync_point.load(std::memory_order_acquire);
}

inline SyncSignature load_signature(const ArrivalFlag& flag) noexcept {
  return {flag.plan.load(std::memory_order_relaxed), flag.key_hash.load(std::memory_order_relaxed),
          flag.shape.load(std::memory_order_relaxed), flag.bytes.load(std::memory_order_relaxed)};
}

// Fetches a flag for its next store. `current` is the sync point that it announces now, which a late reader may still
// load; so the store changes nothing.
inline void prefetch_flag(ArrivalFlag& flag, std::uint64_t current) noexcept {
  flag.sync_point.store(current, std::memory_order_relaxed);
}

// The same for other memory of the calling member, which no member reads any more: the first byte of each line is lost.
inline void prefetch_lines(std::byte* memory, std::size_t bytes) noexcept {
  for (std::size_t at = 0; at < bytes; at += kCacheLineBytes) static_cast<volatile std::byte*>(memory)[at] = {};
}

// Returns when the core has executed all earlier instructions. It orders loads of one core, not memory between cores.
inline void fence_loads() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_lfence();
#elif defined(__aarch64__)
  __asm__ __volatile__("isb" ::: "memory");
#endif
}

// Polls `is_met()` up to `polls` times with a load fence before each and no pause in between; a pause takes as long as
// the transfer of a line. Returns whether it was met.
template <class IsMet>
bool poll_eagerly(int polls, IsMet is_met) {
  for (int poll = 0; poll < polls; ++poll) {
    fence_loads();
    if (is_met()) return true;
  }
  return false;
}

}  // namespace horo
