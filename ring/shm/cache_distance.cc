#include "ring/shm/cache_distance.h"

#include <algorithm>
#include <cstring>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace horo {

void LineProbe::write(std::uint64_t value) noexcept {
  for (Line& line : lines_) line.value.store(value, std::memory_order_relaxed);
}

// The clock is read when everything before has been executed, loads included.
Duration LineProbe::read(std::uint64_t value) const noexcept {
  constexpr std::array<std::size_t, kLines> kOrder{3, 1, 4, 0, 2};  // no pattern to be fetched ahead by
  std::array<Duration, kLines> taken;
  for (const std::size_t at : kOrder) {
    const TimePoint begin = Clock::now();
    const std::uint64_t found = lines_[at].value.load(std::memory_order_relaxed);
    asm volatile("" : : "r"(found));
    taken[at] = Clock::now() - begin;
    if (found != value) return {};
  }
  std::nth_element(taken.begin(), taken.begin() + kLines / 2, taken.end());
  return taken[kLines / 2];
}

void copy_past_caches(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
#if defined(__x86_64__)
  constexpr std::size_t kLine = 64, kVector = sizeof(__m128i);
  const std::size_t before = reinterpret_cast<std::uintptr_t>(to) % kLine;
  std::size_t i = before == 0 ? 0 : std::min(bytes, kLine - before);
  std::memcpy(to, from, i);
  for (; i + kLine <= bytes; i += kLine) {
    for (std::size_t k = i; k < i + kLine; k += kVector) {
      const __m128i value = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + k));
      _mm_stream_si128(reinterpret_cast<__m128i*>(to + k), value);
    }
  }
  _mm_sfence();
  std::memcpy(to + i, from + i, bytes - i);
#else
  std::memcpy(to, from, bytes);
#endif
}

}  // namespace horo
