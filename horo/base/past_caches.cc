#include "horo/base/past_caches.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace horo {

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
