// How much a test does where more of it shows no more than less: a sanitizer's build takes ten times as long for a
// step, looks at each step and not at how many there are, and runs beside the build that does it all.
#pragma once

namespace horo::test {

inline constexpr bool kSanitized = HORO_SANITIZED;  // by tests/CMakeLists.txt

// `all` cases, or one in five.
template <class Count>
constexpr Count effort(Count all) {
  return kSanitized ? (all + 4) / 5 : all;
}

}  // namespace horo::test
