#include "tools/horo/scale/scale_text.h"

#include <algorithm>
#include <numeric>

#include "elastic/texts.h"
#include "horo/base/say.h"
#include "tools/horo/machine/facts.h"
#include "tools/horo/run/launcher.h"
#include "tools/horo/run/lines.h"
#include "tools/horo/run/step_text.h"
#include "tools/horo/scale/amounts.h"

namespace horo::tools {
namespace {

using Cells = std::vector<std::string>;

constexpr std::int64_t kNsInMs = 1'000'000;
constexpr std::int64_t kTenthsOfAll = 1'000;  // tenths of a percent
constexpr std::size_t kLossColumn = 5;
constexpr std::array<const char*, 3> kRateNames{"samples/s", "rank steps/s", "steps/s"};  // by WorkUnit

// Decimals of milliseconds that a step of this length needs.
int decimals_for(std::int64_t step) {
  return step >= 10 * kNsInMs ? 1 : step >= kNsInMs ? 2 : 3;
}

std::int64_t unit_of(int decimals) {
  std::int64_t unit = kNsInMs;
  for (int i = 0; i < decimals; ++i) unit /= 10;
  return unit;
}

std::string units_text(std::int64_t units, int decimals) {
  const double value = static_cast<double>(units * unit_of(decimals)) / static_cast<double>(kNsInMs);
  return fixed(value, decimals);
}

std::string tenths_text(std::int64_t tenths) {
  return fixed(static_cast<double>(tenths) / 10, 1);
}

std::string ppm_text(std::int64_t ppm) {
  return tenths_text(rounded_ratio(ppm, kTenthsOfAll));
}

// With commas between thousands.
std::string grouped(std::int64_t number) {
  std::string text = std::to_string(number);
  for (auto at = static_cast<std::ptrdiff_t>(text.size()) - 3; at > 0; at -= 3) {
    text.insert(static_cast<std::size_t>(at), ",");
  }
  return text;
}

// Columns of equal width; the first line is the head. Numbers stand at the right.
std::string aligned(const std::vector<Cells>& rows) {
  std::vector<std::size_t> widths(rows.front().size());
  for (const Cells& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const Cells& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      line += "  " + std::string(widths[i] - row[i].size(), ' ') + row[i];
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

// In tenths of a percent of the step; with the efficiency they add up to 100.0 as they are shown.
Cells loss_cells(const SizeResult& size) {
  std::vector<Wide> lost;
  for (const OptionalNs& loss : size.lost) lost.push_back(Wide{loss.value_or(0)} * kTenthsOfAll);
  const std::int64_t efficiency = rounded_ratio(Wide{size.ideal} * kTenthsOfAll, size.step);
  const std::vector<std::int64_t> tenths = shares_of(lost, size.step, kTenthsOfAll - efficiency);
  Cells cells;
  for (std::size_t i = 0; i < kLosses; ++i) cells.push_back(size.lost[i] ? tenths_text(tenths[i]) : "n/a");
  return cells;
}

std::string table_text(const ScaleTable& table) {
  Cells head{"ranks", kRateNames.at(static_cast<std::size_t>(table.unit)), "efficiency", "", "step"};
  head.insert(head.end(), kLossNames.begin(), kLossNames.end());
  head[kLossColumn] = "lost, % of the step:  " + head[kLossColumn];
  std::vector<Cells> rows{head};
  for (const SizeResult& size : table.sizes) {
    const bool is_base = &size == &table.sizes.front();
    const std::int64_t efficiency = rounded_ratio(Wide{size.ideal} * kTenthsOfAll, size.step);
    Cells row{std::to_string(size.ranks), rate_text(size.rate_milli), tenths_text(efficiency),
              is_base ? "" : ppm_text(size.low_ppm) + "-" + ppm_text(size.high_ppm), step_text(size.step)};
    const Cells losses = is_base ? Cells(kLosses, "-") : loss_cells(size);
    row.insert(row.end(), losses.begin(), losses.end());
    rows.push_back(std::move(row));
  }
  return aligned(rows);
}

// "4 ranks   input 1.1  forward 16.0 | skew 4.7 = 60.0 ms"; bars of nothing are left out.
std::string bars_text(const SizeResult& size) {
  const int decimals = decimals_for(size.step);
  std::vector<Wide> bars;
  for (const OptionalNs& bar : size.bars) bars.emplace_back(bar.value_or(0));
  const std::int64_t all = rounded_ratio(size.step, unit_of(decimals));
  const std::vector<std::int64_t> units = shares_of(bars, unit_of(decimals), all);
  std::string text = say("  ", size.ranks, size.ranks == 1 ? " rank  " : " ranks "), unknown;
  bool is_wait = false;
  for (std::size_t i = 0; i < kBars; ++i) {
    std::string name(kBarNames[i]);
    std::replace(name.begin(), name.end(), '_', ' ');
    if (!size.bars[i]) unknown += (unknown.empty() ? "" : ", ") + name;
    if (units[i] == 0) continue;
    if (i >= index_of(Bar::kSkew) && !std::exchange(is_wait, true)) text += "  |";
    text += "  " + name + " " + units_text(units[i], decimals);
  }
  text += "  = " + units_text(all, decimals) + " ms\n";
  if (text.size() > kLongestLine && is_wait) text.replace(text.find("  |  "), 5, "\n            |  ");
  if (!unknown.empty()) text += "           not known, and part of between: " + unknown + "\n";
  if (size.hidden_transfer * 1'000 >= size.step) {
    const std::int64_t exposed = size.bars[index_of(Bar::kTransfer)].value_or(0);
    const std::int64_t overlap = rounded_ratio(Wide{size.hidden_transfer} * 100, size.hidden_transfer + exposed);
    text += say("           hidden transfer ", step_text(size.hidden_transfer), " (", overlap, " % overlap)\n");
  }
  return text;
}

std::string head_text(const ScaleDocument& document) {
  std::string text;
  for (const std::string& word : document.command)
    text += (text.empty() ? "" : " ") + printable(quoted_for_shell(word));
  const std::string scaling = document.plan.is_strong ? "strong scaling" : "weak scaling";
  text += "\n";
  if (document.samples) {
    text += say("  ", grouped(*document.samples), " samples a ", document.plan.is_strong ? "" : "rank and ",
                "step at every size: ");
  } else {
    text += "  ";
  }
  return text + say(scaling, ".  ", document.plan.rounds, document.plan.rounds == 1 ? " round of " : " rounds of ",
                    time_text(document.plan.run_ns), "\n");
}

}  // namespace

std::string rate_text(std::int64_t milli) {
  if (milli >= 100'000) return grouped(rounded_ratio(milli, 1'000));
  return fixed(static_cast<double>(milli) / 1'000, milli >= 10'000 ? 1 : 2);
}

std::string step_text(std::int64_t ns) {
  const int decimals = decimals_for(ns);
  return units_text(rounded_ratio(ns, unit_of(decimals)), decimals) + " ms";
}

std::string text_of(const ScaleDocument& document) {
  std::string text = head_text(document);
  const std::vector<SizeResult>& sizes = document.table.sizes;
  if (!sizes.empty()) {
    text += "\n" + table_text(document.table) + "\n" + bars_text(sizes.back());
    if (sizes.back().late) text += "  skew     " + straggler_text(*sizes.back().late) + "\n";
  }
  for (const std::string& note : document.notes) text += "  note     " + printable(note) + "\n";
  return folded(text);
}

}  // namespace horo::tools
