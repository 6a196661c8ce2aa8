// Amounts: integers that divide an integer total, so that what is shown adds up.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace horo::tools {

// Sums of nanoseconds times numbers of samples need more than 64 bits.
using Wide = __int128;

inline constexpr std::int64_t kMillion = 1'000'000;  // parts per million of a whole

// The integer next to numerator / denominator; halves go up. denominator > 0.
std::int64_t rounded_ratio(Wide numerator, Wide denominator);

// numerator / denominator for each, rounded so that the results add up to `total`, which is next to their exact sum:
// each is rounded down, and what is left goes to those with the largest remainders, the first ones first.
std::vector<std::int64_t> shares_of(std::span<const Wide> numerators, Wide denominator, std::int64_t total);

}  // namespace horo::tools
