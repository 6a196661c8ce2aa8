#include "tools/horo/scale/late_rank.h"

#include <algorithm>

#include "tools/horo/scale/amounts.h"

namespace horo::tools {
namespace {

// The median of the bar over all other ranks.
std::int64_t bar_of_others(const std::vector<RankStep>& means, std::size_t late, std::size_t bar) {
  std::vector<std::int64_t> others;
  for (std::size_t i = 0; i < means.size(); ++i) {
    if (i != late) others.push_back(means[i].bars[bar].value_or(0));
  }
  std::sort(others.begin(), others.end());
  return others[others.size() / 2];
}

// A bar is the reason if it covers 80 % of the lateness.
void explain(const std::vector<RankStep>& means, std::size_t late, std::int64_t lateness, LateOne& one) {
  std::size_t most = 0;
  for (std::size_t bar = 0; bar < index_of(Bar::kSkew); ++bar) {
    const std::int64_t excess = means[late].bars[bar].value_or(0) - bar_of_others(means, late, bar);
    if (excess <= one.excess) continue;
    one.excess = excess;
    most = bar;
  }
  if (10 * one.excess >= 8 * lateness && one.excess > 0) one.bar = static_cast<std::int64_t>(most);
}

}  // namespace

std::optional<LateOne> late_one_of(const std::vector<RankSums>& sums, const std::vector<RankStep>& means) {
  std::int64_t skew = 0, time = 0;
  std::size_t late = 0;
  for (std::size_t i = 0; i < sums.size(); ++i) {
    skew += sums[i].sums.bars[index_of(Bar::kSkew)];
    time += sums[i].sums.time;
    if (sums[i].caused > sums[late].caused) late = i;
  }
  if (sums.size() < 2 || Wide{skew} * 50 < time || sums[late].caused == 0) return {};
  LateOne one;
  one.rank = sums[late].rank;
  one.share_ppm = rounded_ratio(Wide{sums[late].caused} * kMillion, skew);
  one.is_one = one.share_ppm >= kMillion / 2;
  const std::int64_t steps = std::max<std::int64_t>(sums[late].sums.rows, 1);
  one.last_ppm = rounded_ratio(Wide{sums[late].last} * kMillion, steps);
  const std::int64_t lateness = sums[late].caused / steps / static_cast<std::int64_t>(sums.size() - 1);
  if (one.is_one) explain(means, late, lateness, one);
  return one;
}

}  // namespace horo::tools
