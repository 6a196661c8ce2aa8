// The method of the largest remainder, as in the distribution of seats.
#include "tools/horo/scale/amounts.h"

#include <algorithm>
#include <numeric>

#include "horo/base/check.h"

namespace horo::tools {
namespace {

Wide rounded_down(Wide numerator, Wide denominator) {
  const Wide quotient = numerator / denominator;
  return numerator % denominator < 0 ? quotient - 1 : quotient;
}

}  // namespace

std::int64_t rounded_ratio(Wide numerator, Wide denominator) {
  return static_cast<std::int64_t>(rounded_down(2 * numerator + denominator, 2 * denominator));
}

std::vector<std::int64_t> shares_of(std::span<const Wide> numerators, Wide denominator, std::int64_t total) {
  std::vector<std::int64_t> shares;
  std::vector<Wide> remainders;
  for (const Wide numerator : numerators) {
    const Wide down = rounded_down(numerator, denominator);
    shares.push_back(static_cast<std::int64_t>(down));
    remainders.push_back(numerator - down * denominator);
  }
  std::vector<std::size_t> order(shares.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t one, std::size_t other) { return remainders[one] > remainders[other]; });
  const std::int64_t left = total - std::accumulate(shares.begin(), shares.end(), std::int64_t{0});
  HORO_CHECK(left >= 0 && left <= static_cast<std::int64_t>(shares.size()));
  for (std::int64_t i = 0; i < left; ++i) ++shares[order[static_cast<std::size_t>(i)]];
  return shares;
}

}  // namespace horo::tools
