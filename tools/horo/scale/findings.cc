#include "tools/horo/scale/findings.h"

#include <algorithm>
#include <map>

#include "horo/base/say.h"
#include "tools/horo/machine/facts.h"

namespace horo::tools {
namespace {

constexpr std::int64_t kTolerance = 50;      // samples may differ by a part of so many: batches that do not divide
constexpr std::int64_t kQuietPpm = 100'000;  // by so much rounds of one size may differ
constexpr std::int64_t kBusyPpm = 20'000;    // of a step, so much waiting for a core
constexpr double kPpmOfPercent = 10'000;
constexpr std::int64_t kTooGoodPpm = 1'100'000;

std::string ranks_word(int ranks) {
  return std::to_string(ranks) + (ranks == 1 ? " rank" : " ranks");
}

// "1", "1 and 2", "1, 2 and 4".
std::string list_of(const std::vector<int>& numbers) {
  std::string text;
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    text += (i == 0 ? "" : i + 1 == numbers.size() ? " and " : ", ") + std::to_string(numbers[i]);
  }
  return text;
}

bool are_alike(std::int64_t one, std::int64_t other) {
  return std::abs(one - other) * kTolerance <= std::max(one, other);
}

// Of one size, a run that failed stands for all of them.
void add_failures(std::span<const RunData> runs, const ScaleTable& table, std::vector<std::string>& notes) {
  std::map<int, std::pair<int, std::string>> failures;  // by ranks: how many, the first
  for (const RunData& run : runs) {
    if (run.failure.empty()) continue;
    auto& [count, why] = failures[run.ranks];
    if (count++ == 0) why = run.failure;
  }
  std::vector<int> shown;
  for (const SizeResult& size : table.sizes) shown.push_back(size.ranks);
  for (const auto& [ranks, failure] : failures) {
    const bool is_shown = std::find(shown.begin(), shown.end(), ranks) != shown.end();
    std::string text = say("failed with ", ranks_word(ranks),
                           is_shown ? say(" in ", failure.first, " of its rounds") : "", ": ", failure.second);
    if (!is_shown && !shown.empty()) text += "; " + list_of(shown) + (shown.size() == 1 ? " is shown" : " are shown");
    notes.push_back(std::move(text));
  }
}

// Of rounds of one size.
void add_noise(std::span<const RunData> runs, std::vector<std::string>& notes) {
  std::map<int, std::pair<double, double>> times;  // by ranks: the shortest and the longest mean step
  for (const RunData& run : runs) {
    if (!run.failure.empty()) continue;
    StepSums sums;
    for (const RankSums& rank : run.by_rank) add_sums(sums, rank.sums);
    const double step = static_cast<double>(sums.time) / static_cast<double>(sums.rows);
    const auto [place, is_new] = times.try_emplace(run.ranks, step, step);
    place->second.first = std::min(place->second.first, step);
    place->second.second = std::max(place->second.second, step);
  }
  for (const auto& [ranks, range] : times) {
    const double ppm = 1e6 * (range.second / range.first - 1);
    if (ppm < static_cast<double>(kQuietPpm)) continue;
    notes.push_back(say("the rounds with ", ranks_word(ranks), " differ by ", fixed(ppm / kPpmOfPercent, 0),
                        " %: another program used this machine, or --seconds is too short"));
  }
}

void add_busy(const ScaleTable& table, std::vector<std::string>& notes) {
  for (const SizeResult& size : table.sizes) {
    if (size.run_queue_ppm.value_or(0) < kBusyPpm) continue;
    notes.push_back(say("with ", ranks_word(size.ranks), " the training threads waited for a core for ",
                        fixed(static_cast<double>(*size.run_queue_ppm) / kPpmOfPercent, 1), " % of the step"));
  }
}

// Steps alone do not tell how much work they have.
void add_too_good(const ScaleTable& table, std::vector<std::string>& notes) {
  if (table.unit != WorkUnit::kRankSteps) return;
  const auto found =
      std::ranges::find_if(table.sizes, [](const auto& one) { return one.efficiency_ppm > kTooGoodPpm; });
  if (found == table.sizes.end()) return;
  notes.push_back(say("more than 100 % with ", ranks_word(found->ranks),
                      ": a script that divides one batch among its ranks is measured with --strong"));
}

void add_unknown(std::span<const RunData> runs, const ScaleTable& table, std::vector<std::string>& notes) {
  if (!table.sizes.empty() && table.unit != WorkUnit::kSamples) {
    notes.push_back(
        "samples are not known, so steps are counted: a DataLoader tells them, or horo.input(loader) in the script");
  }
  std::int64_t left_out = 0;
  for (const RunData& run : runs) left_out += run.left_out;
  if (left_out == 0) return;
  notes.push_back(say(left_out, " steps were not written, because they came faster than the disk: they do not count"));
}

}  // namespace

SamplesCheck check_samples(std::span<const RunData> runs, bool is_strong) {
  SamplesCheck check;
  const RunData* first = nullptr;
  const auto samples_of = [&](const RunData& run) { return is_strong ? run.samples_of_step : run.samples_of_rank; };
  for (const RunData& run : runs) {
    if (!run.failure.empty() || !samples_of(run)) continue;
    if (first == nullptr) first = &run;
    if (are_alike(*samples_of(*first), *samples_of(run))) continue;
    check.error = say("samples of a ", is_strong ? "step of all ranks" : "rank and step", ": ", *samples_of(*first),
                      " with ", ranks_word(first->ranks), ", ", *samples_of(run), " with ", ranks_word(run.ranks),
                      "; expected the same at every size (", is_strong ? "strong" : "weak", " scaling). ");
    check.error += is_strong ? "A script that gives each rank a batch of its own is measured without --strong"
                             : "A script that divides one batch among its ranks is measured with --strong";
    return check;
  }
  if (first != nullptr) check.samples = samples_of(*first);
  return check;
}

std::vector<std::string> findings_of(std::span<const RunData> runs, const ScaleTable& table, const ScalePlan& plan,
                                     int cores) {
  std::vector<std::string> notes;
  add_failures(runs, table, notes);
  if (plan.sizes.size() == 1) notes.emplace_back("one size only: there is nothing to compare it with");
  if (plan.sizes.size() > 1 && table.sizes.size() == 1) {
    notes.push_back(say("only ", ranks_word(table.sizes.front().ranks), " could be measured"));
  }
  if (plan.sizes.back() > cores) {
    notes.push_back(say(plan.sizes.back(), " ranks on ", cores, cores == 1 ? " core" : " cores",
                        ": efficiency says nothing about larger machines"));
  }
  if (!table.sizes.empty() && table.sizes.front().ranks > 1) {
    notes.push_back(say("100 % is ", ranks_word(table.sizes.front().ranks),
                        ", the smallest number: what these lose already is not seen"));
  }
  add_unknown(runs, table, notes);
  add_too_good(table, notes);
  add_noise(runs, notes);
  add_busy(table, notes);
  return notes;
}

}  // namespace horo::tools
