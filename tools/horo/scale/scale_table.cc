// Efficiency compares rank-seconds for each unit of work with those of the smallest size, the base. Every bar of a step
// does the same, so the differences of the bars are the losses, and add up to the whole.
#include "tools/horo/scale/scale_table.h"

#include <algorithm>
#include <map>

#include "tools/horo/scale/amounts.h"
#include "tools/horo/scale/interval.h"

namespace horo::tools {
namespace {

constexpr std::size_t kBetweenBar = index_of(Bar::kBetween);
constexpr std::array kComputeBars{Bar::kForward, Bar::kBackward, Bar::kAfterBackward, Bar::kOptimizer};

using Runs = std::vector<const RunData*>;

// A bar that is not known in every row is part of "between".
StepSums folded_bars(StepSums sums, const std::array<bool, kBars>& is_known) {
  for (std::size_t i = 0; i < kBars; ++i) {
    sums.is_known[i] = is_known[i] || i == kBetweenBar;
    if (sums.is_known[i]) continue;
    sums.bars[kBetweenBar] += sums.bars[i];
    sums.bars[i] = 0;
  }
  return sums;
}

StepSums sums_of(const RunData& run) {
  StepSums sums;
  for (const RankSums& rank : run.by_rank) add_sums(sums, rank.sums);
  return sums;
}

StepSums sums_of(const Runs& runs) {
  StepSums sums;
  for (const RunData* run : runs) add_sums(sums, sums_of(*run));
  return sums;
}

std::int64_t work_of(const StepBlock& block, WorkUnit unit) {
  return unit == WorkUnit::kSamples ? block.samples : block.rows;
}

// Of kJobSteps in units of one rank's part of a step: ranks times more.
std::int64_t work_of(const StepSums& sums, WorkUnit unit) {
  return unit == WorkUnit::kSamples ? sums.samples.value_or(0) : sums.rows;
}

std::size_t loss_of(std::size_t bar, bool is_between_compute) {
  switch (static_cast<Bar>(bar)) {
    case Bar::kSkew:
      return index_of(Loss::kSkew);
    case Bar::kTransfer:
      return index_of(Loss::kTransfer);
    case Bar::kAgreement:
      return index_of(Loss::kAgreement);
    case Bar::kInput:
      return index_of(Loss::kInput);
    case Bar::kForward:
    case Bar::kBackward:
    case Bar::kAfterBackward:
    case Bar::kOptimizer:
      return index_of(Loss::kCompute);
    case Bar::kBetween:
      return index_of(is_between_compute ? Loss::kCompute : Loss::kOther);
    default:
      return index_of(Loss::kOther);
  }
}

std::array<OptionalNs, kBars> mean_bars(const StepSums& folded, std::int64_t step) {
  std::array<Wide, kBars> bars{};
  std::copy(folded.bars.begin(), folded.bars.end(), bars.begin());
  const std::vector<std::int64_t> means = shares_of(bars, folded.rows, step);
  std::array<OptionalNs, kBars> known;
  for (std::size_t i = 0; i < kBars; ++i) {
    if (folded.is_known[i]) known[i] = means[i];
  }
  return known;
}

RankStep rank_step(std::int64_t rank, const StepSums& sums) {
  RankStep mean;
  mean.rank = rank;
  mean.step = rounded_ratio(sums.time, sums.rows);
  mean.bars = mean_bars(folded_bars(sums, sums.is_known), mean.step);
  return mean;
}

PpmInterval interval_of(const Runs& base, const Runs& size, WorkUnit unit) {
  std::map<int, RoundBlocks> rounds;
  const auto blocks_of = [unit](const RunData& run) {
    std::vector<StepBlock> blocks = run.blocks;
    for (StepBlock& block : blocks) block.samples = work_of(block, unit);
    return blocks;
  };
  for (const RunData* run : base) rounds[run->round].base = blocks_of(*run);
  for (const RunData* run : size) rounds[run->round].size = blocks_of(*run);
  std::vector<RoundBlocks> whole;
  for (auto& [round, blocks] : rounds) {
    if (!blocks.base.empty() && !blocks.size.empty()) whole.push_back(std::move(blocks));
  }
  return whole.empty() ? PpmInterval{} : efficiency_interval(whole);
}

std::vector<RankSums> sums_by_rank(const Runs& runs) {
  std::vector<RankSums> ranks = runs.front()->by_rank;
  for (const RunData* run : std::span(runs).subspan(1)) {
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      add_sums(ranks[rank].sums, run->by_rank[rank].sums);
    }
  }
  return ranks;
}

// The rows of a run have each step of all ranks, in the order of the ranks. Runs follow one another.
std::optional<Straggler> straggler_of(const Runs& runs) {
  std::vector<RankSteps> ranks(static_cast<std::size_t>(runs.front()->ranks));
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    ranks[rank].rank = static_cast<int>(rank);
    for (const RunData* run : runs) {
      for (std::size_t at = rank; at < run->rows.size(); at += ranks.size())
        ranks[rank].steps.push_back(record_of(run->rows[at]));
    }
  }
  return find_straggler(ranks);
}

std::int64_t median_step_of(const Runs& runs) {
  std::vector<std::int64_t> medians;
  for (const RunData* run : runs) medians.push_back(run->median_step);
  std::sort(medians.begin(), medians.end());
  return medians[medians.size() / 2];
}

void describe_steps(const Runs& runs, const StepSums& sums, WorkUnit unit, SizeResult& result) {
  result.ranks = runs.front()->ranks;
  result.runs = static_cast<std::int64_t>(runs.size());
  for (const RunData* run : runs) {
    result.steps += run->steps;
    result.long_steps += run->long_steps;
    result.long_time += run->long_time;
  }
  result.median_step = median_step_of(runs);
  const std::int64_t work = unit == WorkUnit::kJobSteps ? result.steps : work_of(sums, unit);
  result.rate_milli = rounded_ratio(Wide{work} * result.ranks * 1'000 * 1'000'000'000, sums.time);
  result.bars = mean_bars(folded_bars(sums, sums.is_known), result.step);
  result.hidden_transfer = rounded_ratio(sums.hidden_transfer, sums.rows);
  if (sums.run_queue) result.run_queue_ppm = rounded_ratio(Wide{*sums.run_queue} * kMillion, sums.time);
  for (const RankSums& rank : sums_by_rank(runs)) result.by_rank.push_back(rank_step(rank.rank, rank.sums));
  result.late = straggler_of(runs);
  result.lateness = runs.back()->lateness;
}

SizeResult result_of(const Runs& base, const Runs& size, WorkUnit unit) {
  const StepSums base_sums = sums_of(base), sums = sums_of(size);
  // A step of the job is one of each of its ranks: in rank-seconds, that of one rank counts as 1 / ranks.
  const std::int64_t base_part = unit == WorkUnit::kJobSteps ? size.front()->ranks : 1;
  const std::int64_t part = unit == WorkUnit::kJobSteps ? base.front()->ranks : 1;
  const LossSplit split =
      split_losses(base_sums, work_of(base_sums, unit) * base_part, sums, work_of(sums, unit) * part);
  SizeResult result;
  result.step = split.step;
  result.ideal = split.ideal;
  result.lost = split.lost;
  describe_steps(size, sums, unit, result);
  result.efficiency_ppm = rounded_ratio(Wide{split.ideal} * kMillion, split.step);
  if (base.front()->ranks == size.front()->ranks) {
    result.low_ppm = result.high_ppm = result.efficiency_ppm;
    return result;
  }
  PpmInterval interval = interval_of(base, size, unit);
  const auto scaled = [&](std::int64_t ppm) { return rounded_ratio(Wide{ppm} * part, base_part); };
  result.low_ppm = std::min(scaled(interval.low), result.efficiency_ppm);
  result.high_ppm = std::max(scaled(interval.high), result.efficiency_ppm);
  return result;
}

}  // namespace

LossSplit split_losses(const StepSums& base, std::int64_t base_work, const StepSums& size, std::int64_t work) {
  std::array<bool, kBars> is_known{};
  for (std::size_t i = 0; i < kBars; ++i) is_known[i] = base.is_known[i] && size.is_known[i];
  const StepSums before = folded_bars(base, is_known), after = folded_bars(size, is_known);
  const bool is_between_compute =
      std::none_of(kComputeBars.begin(), kComputeBars.end(), [&](Bar bar) { return is_known[index_of(bar)]; });
  std::array<Wide, kLosses> lost{};
  Wide all = 0;
  std::array<bool, kLosses> has_bar{};
  for (std::size_t i = 0; i < kBars; ++i) {
    const Wide difference = Wide{after.bars[i]} * base_work - Wide{before.bars[i]} * work;
    const std::size_t loss = loss_of(i, is_between_compute);
    lost[loss] += difference;
    all += difference;
    has_bar[loss] = has_bar[loss] || after.is_known[i];
  }
  const Wide divisor = Wide{base_work} * size.rows;
  LossSplit split;
  split.step = rounded_ratio(size.time, size.rows);
  const std::int64_t all_lost = rounded_ratio(all, divisor);
  split.ideal = split.step - all_lost;
  const std::vector<std::int64_t> shares = shares_of(lost, divisor, all_lost);
  for (std::size_t i = 0; i < kLosses; ++i) {
    if (has_bar[i] || shares[i] != 0) split.lost[i] = shares[i];
  }
  return split;
}

ScaleTable table_of(std::span<const RunData> runs, bool is_strong) {
  std::map<int, Runs> by_size;
  bool has_samples = true;
  for (const RunData& run : runs) {
    if (!run.failure.empty()) continue;
    by_size[run.ranks].push_back(&run);
    has_samples = has_samples && sums_of(run).samples.value_or(0) > 0;
  }
  ScaleTable table;
  table.unit = has_samples ? WorkUnit::kSamples : is_strong ? WorkUnit::kJobSteps : WorkUnit::kRankSteps;
  for (const auto& [ranks, size] : by_size) {
    table.sizes.push_back(result_of(by_size.begin()->second, size, table.unit));
  }
  return table;
}

}  // namespace horo::tools
