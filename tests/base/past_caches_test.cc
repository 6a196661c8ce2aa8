#include "horo/base/past_caches.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace horo {
namespace {

TEST(CopyPastCaches, CopiesTheSameBytesAsMemcpy) {
  constexpr std::size_t kBytes = 700;
  std::vector<std::byte> from(kBytes);
  for (std::size_t i = 0; i < kBytes; ++i) from[i] = static_cast<std::byte>(i * 7 + 1);
  for (const std::size_t bytes : {0, 1, 15, 16, 63, 64, 65, 127, 128, 300, 511}) {
    for (std::size_t to_at = 0; to_at < 70; ++to_at) {
      const std::size_t from_at = to_at * 5 % 67;
      std::vector<std::byte> to(kBytes), expected(kBytes);
      std::copy_n(from.begin() + static_cast<std::ptrdiff_t>(from_at), bytes,
                  expected.begin() + static_cast<std::ptrdiff_t>(to_at));
      copy_past_caches(to.data() + to_at, from.data() + from_at, bytes);
      ASSERT_EQ(to, expected) << bytes << " bytes from " << from_at << " to " << to_at;
    }
  }
}

}  // namespace
}  // namespace horo
