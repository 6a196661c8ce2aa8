#include "tools/horo/scale/run_data.h"

#include <algorithm>
#include <map>

#include "horo/base/say.h"

namespace horo::tools {
namespace {

constexpr std::size_t kBlocks = 10;
constexpr std::size_t kDrawnSteps = 256;      // in the picture of lateness
constexpr std::size_t kMostKeptRows = 4'096;  // of a run
constexpr std::int64_t kLong = 4;             // times the median

std::int64_t median_of(std::vector<std::int64_t> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// The rows of one step, by rank.
using StepOfRanks = std::vector<const StepRow*>;

std::vector<StepOfRanks> steps_of_all(std::span<const std::vector<StepRow>> by_rank) {
  std::map<std::int64_t, StepOfRanks> steps;
  for (std::size_t rank = 0; rank < by_rank.size(); ++rank) {
    for (const StepRow& row : by_rank[rank]) {
      StepOfRanks& rows = steps[row.step];
      if (rows.size() == rank) rows.push_back(&row);  // the ranks before it have this step, too
    }
  }
  std::vector<StepOfRanks> whole;
  for (auto& [step, rows] : steps) {
    if (rows.size() == by_rank.size()) whole.push_back(std::move(rows));
  }
  return whole;
}

// Places of the first step that counts and of the one after the last.
std::pair<std::size_t, std::size_t> window_in(const std::vector<StepOfRanks>& steps, const StepWindow& window) {
  if (steps.empty()) return {0, 0};
  const auto begin_of = [&](std::size_t at) { return steps[at].front()->begin; };
  std::size_t first = 0;
  while (first < steps.size() && window.is_warm_up(static_cast<std::int64_t>(first), begin_of(first) - begin_of(0)))
    ++first;
  std::size_t end = first;
  while (end < steps.size() && begin_of(end) - begin_of(first) < window.length_ns) ++end;
  return {first, end};
}

void add_samples(std::span<const StepOfRanks> steps, RunData& run) {
  std::vector<std::int64_t> of_rank, of_step;
  for (const StepOfRanks& rows : steps) {
    std::int64_t sum = 0;
    for (const StepRow* row : rows) {
      if (!row->samples) return;
      of_rank.push_back(*row->samples);
      sum += *row->samples;
    }
    of_step.push_back(sum);
  }
  run.samples_of_rank = median_of(std::move(of_rank));
  run.samples_of_step = median_of(std::move(of_step));
}

void add_blocks(std::span<const StepOfRanks> steps, RunData& run) {
  const std::size_t blocks = std::min(kBlocks, steps.size());
  for (std::size_t i = 0; i < blocks; ++i) {
    StepBlock block;
    for (std::size_t at = i * steps.size() / blocks; at < (i + 1) * steps.size() / blocks; ++at) {
      for (const StepRow* row : steps[at]) {
        ++block.rows;
        block.time += row->time;
        block.samples += row->samples.value_or(0);
      }
    }
    run.blocks.push_back(block);
  }
}

std::vector<std::int64_t> caused_in(const StepOfRanks& rows) {
  std::vector<std::int64_t> caused(rows.size());
  for (const StepRow* row : rows) {
    for (const auto& [rank, time] : row->late) {
      if (rank >= 0 && rank < static_cast<std::int64_t>(rows.size())) caused[static_cast<std::size_t>(rank)] += time;
    }
  }
  return caused;
}

void add_lateness(std::span<const StepOfRanks> steps, RunData& run) {
  const std::size_t first = steps.size() - std::min(kDrawnSteps, steps.size());
  run.lateness.first_step = steps[first].front()->step;
  run.lateness.caused.resize(run.by_rank.size());
  for (std::size_t at = 0; at < steps.size(); ++at) {
    const std::vector<std::int64_t> caused = caused_in(steps[at]);
    for (std::size_t rank = 0; rank < caused.size(); ++rank) {
      run.by_rank[rank].caused += caused[rank];
      if (at >= first) run.lateness.caused[rank].push_back(caused[rank]);
    }
  }
}

void add_lengths(std::span<const StepOfRanks> steps, RunData& run) {
  std::vector<std::int64_t> times;
  for (const StepOfRanks& rows : steps) times.push_back(rows.front()->time);
  run.median_step = median_of(times);
  for (const std::int64_t time : times) {
    if (time <= kLong * run.median_step) continue;
    ++run.long_steps;
    run.long_time += time;
  }
}

void keep_rows(std::span<const StepOfRanks> steps, RunData& run) {
  const std::size_t most = std::max(kDrawnSteps, kMostKeptRows / run.by_rank.size());
  for (const StepOfRanks& rows : steps.last(std::min(most, steps.size()))) {
    for (const StepRow* row : rows) run.rows.push_back(*row);
  }
}

}  // namespace

bool StepWindow::is_warm_up(std::int64_t index, std::int64_t elapsed_ns) const {
  return elapsed_ns < warm_up_ns() || (index < kWarmUpSteps && elapsed_ns < length_ns);
}

namespace {

// One row without the times of its device does not hide what the others tell.
void add_what_is_known(StepSums& sums, const StepRow& row) {
  if (!row.is_timed && sums.timed_rows > 0) return;
  const bool is_first = row.is_timed ? sums.timed_rows == 0 : sums.rows == 0;
  for (std::size_t i = 0; i < kBars; ++i) {
    sums.is_known[i] = row.bars[i].has_value() && (is_first || sums.is_known[i]);
  }
}

void add_known(std::optional<std::int64_t>& sum, const std::optional<std::int64_t>& more) {
  if (more) sum = sum.value_or(0) + *more;
}

}  // namespace

void add_row(StepSums& sums, const StepRow& row) {
  for (std::size_t i = 0; i < kBars; ++i) sums.bars[i] += row.bars[i].value_or(0);
  add_what_is_known(sums, row);
  ++sums.rows;
  sums.timed_rows += row.is_timed ? 1 : 0;
  sums.time += row.time;
  sums.hidden_transfer += row.hidden_transfer;
  sums.samples = sums.samples && row.samples ? std::optional(*sums.samples + *row.samples) : std::nullopt;
  add_known(sums.run_queue, row.run_queue);
}

void add_sums(StepSums& sums, const StepSums& more) {
  for (std::size_t i = 0; i < kBars; ++i) {
    sums.bars[i] += more.bars[i];
    sums.is_known[i] = more.is_known[i] && (sums.rows == 0 || sums.is_known[i]);
  }
  sums.rows += more.rows;
  sums.time += more.time;
  sums.hidden_transfer += more.hidden_transfer;
  sums.samples = sums.samples && more.samples ? std::optional(*sums.samples + *more.samples) : std::nullopt;
  add_known(sums.run_queue, more.run_queue);
}

RunData measure_run(std::span<const std::vector<StepRow>> by_rank, const StepWindow& window) {
  RunData run;
  run.ranks = static_cast<int>(by_rank.size());
  const std::vector<StepOfRanks> all = steps_of_all(by_rank);
  const auto [first, end] = window_in(all, window);
  run.warm_up_steps = static_cast<std::int64_t>(first);
  run.steps = static_cast<std::int64_t>(end - first);
  if (run.steps < StepWindow::kLeastSteps) {
    run.failure = say(run.steps, " steps behind a warm-up of ", run.warm_up_steps, " steps, expected at least ",
                      StepWindow::kLeastSteps);
    return run;
  }
  const std::span<const StepOfRanks> steps(all.begin() + static_cast<std::ptrdiff_t>(first), end - first);
  run.by_rank.resize(by_rank.size());
  for (std::size_t rank = 0; rank < by_rank.size(); ++rank) {
    run.by_rank[rank].rank = static_cast<std::int64_t>(rank);
    for (const StepOfRanks& rows : steps) add_row(run.by_rank[rank].sums, *rows[rank]);
  }
  add_samples(steps, run);
  add_blocks(steps, run);
  add_lateness(steps, run);
  add_lengths(steps, run);
  keep_rows(steps, run);
  return run;
}

}  // namespace horo::tools
