#include "tools/horo/run/step_text.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <utility>

#include "elastic/texts.h"
#include "tools/horo/machine/facts.h"
#include "tools/horo/run/lines.h"
#include "tools/horo/run/text_table.h"

namespace horo::tools {
namespace {

constexpr std::size_t kLetters = 24;  // of a step
constexpr std::size_t kFewestLetters = 20, kMostLetters = 48;
constexpr std::size_t kFewestColumns = 2;  // of bars
constexpr double kLeastShare = 0.005;      // of a bar with a column of its own
constexpr std::size_t kMostRows = 64;

// By Bar.
constexpr std::array<char, kBars> kLetterOf{'i', 'f', 'b', 'a', 'o', 'k', '-', '.', 'g', 't', 'c', 'm', 'h', 'x'};
constexpr std::array<const char*, kBars> kWords{"input",      "forward", "backward",  "after backward", "optimizer",
                                                "checkpoint", "between", "skew",      "agreement",      "transfer",
                                                "copies",     "commit",  "hand-over", "membership"};

std::string milliseconds(std::int64_t ns) {
  return fixed(static_cast<double>(ns) / 1e6, ns < 10'000'000 ? 2 : 1);
}

std::string percent(double share) {
  return fixed(100 * share, 0) + " %";
}

bool is_known(const StepFigures& steps, std::size_t bar) {
  return (steps.known & bit_of(static_cast<Bar>(bar))) != 0;
}

// Of a rank's step, the largest one.
double share_of(const JobStatus& status, std::size_t bar) {
  double share = 0;
  for (const MemberStatus& member : status.members) {
    if (!member.steps) continue;
    const auto step = static_cast<double>(std::max<std::int64_t>(member.steps->step, 1));
    share = std::max(share, static_cast<double>(member.steps->bars[bar]) / step);
  }
  return share;
}

// The bars that are worth a column in some row; the others are together.
std::vector<std::size_t> columns_of(const JobStatus& status) {
  std::vector<std::size_t> columns;
  for (std::size_t bar = 0; bar < kBars; ++bar) {
    if (share_of(status, bar) >= kLeastShare) columns.push_back(bar);
  }
  return columns;
}

std::string sentence_of(const Straggler& one) {
  const bool is_host = !one.host.empty();
  const std::string time = milliseconds(one.excess.count()) + " ms";
  switch (one.cause) {
    case Cause::kStopped:
      return std::string(is_host ? "they were" : "it was") + " stopped (SIGSTOP, or a debugger)";
    case Cause::kCollection:
      return "Python collected garbage there for " + time;
    case Cause::kNoCore:
      return (is_host ? "their training threads" : "its training thread") + (" waited for a core for " + time);
    case Cause::kBar:
      return std::string(is_host ? "their " : "its ") + kWords[index_of(one.bar)] + " takes " + time +
             " more than that of the median rank";
    default:
      return std::string("no part of ") + (is_host ? "their steps" : "its step") + " explains it";
  }
}

// "rank 2: it is", "ranks 2, 3 of one host: they are".
std::string subject_of(const Straggler& one) {
  if (one.host.empty()) return "rank " + std::to_string(one.rank) + ": it is";
  std::string ranks;
  for (const int rank : one.host) ranks += (ranks.empty() ? "" : ", ") + std::to_string(rank);
  return "ranks " + ranks + " of one host: they are";
}

std::string when_of(const Straggler& one) {
  switch (one.when) {
    case When::kAlways:
      return "in nearly all steps";
    case When::kPeriodic:
      return "in each step number " + std::to_string(one.period);
    case When::kWithData:
      return "in steps with much data (correlation " + fixed(one.correlation, 2) + ")";
    default:
      return "in " + percent(one.steps) + " of the steps, at random";
  }
}

// In lines of this width, if it is not 0; a letter and its word stay together.
std::string legend_of(const std::vector<std::size_t>& columns, std::size_t width) {
  std::string text, line;
  for (const std::size_t bar : columns) {
    const std::string item = "  " + std::string(1, kLetterOf[bar]) + " " + kWords[bar];
    if (width > 0 && !line.empty() && line.size() + item.size() > width) text += std::exchange(line, "") + "\n";
    line += item;
  }
  return text + line + "\n";
}

// What a rank does itself, but for computing; waits for others; other waits.
constexpr const char *kOwnColour = "\033[36m", *kLateColour = "\033[31m", *kWaitColour = "\033[35m",
                     *kNoColour = "\033[0m";

const char* colour_of(char letter) {
  const auto bar = static_cast<Bar>(std::ranges::find(kLetterOf, letter) - kLetterOf.begin());
  if (bar == Bar::kInput || bar == Bar::kCheckpoint || bar == Bar::kBetween) return kOwnColour;
  if (bar < Bar::kSkew) return kNoColour;
  return bar == Bar::kSkew ? kLateColour : kWaitColour;
}

std::string coloured(const std::string& letters) {
  std::string text;
  const char* colour = kNoColour;
  for (const char letter : letters) {
    if (colour_of(letter) != colour) text += colour = colour_of(letter);
    text += letter;
  }
  return text + kNoColour;
}

// A head, and a row for each rank with steps.
Rows rows_of(const JobStatus& status, const std::vector<std::size_t>& columns) {
  Rows rows{{status.min_ranks ? "id" : "rank", "steps", "step ms", "samples/s"}};
  for (const std::size_t bar : columns) rows[0].push_back(kWords[bar]);
  for (const char* word : {"other", "waits for it"}) rows[0].push_back(word);
  for (const MemberStatus& member : status.members) {
    if (!member.steps || rows.size() > kMostRows) continue;
    const StepFigures& steps = *member.steps;
    std::vector<std::string> row{std::to_string(member.id), grouped(static_cast<double>(steps.steps)),
                                 milliseconds(steps.step), steps.samples_per_s ? grouped(*steps.samples_per_s) : "n/a"};
    std::int64_t other = steps.step;
    for (const std::size_t bar : columns) {
      row.push_back(is_known(steps, bar) ? milliseconds(steps.bars[bar]) : "n/a");
      other -= steps.bars[bar];
    }
    row.push_back(milliseconds(std::max<std::int64_t>(other, 0)));
    row.push_back(steps.waits ? milliseconds(*steps.waits) : "n/a");
    rows.push_back(std::move(row));
  }
  return rows;
}

void add_letters(const JobStatus& status, std::size_t count, bool has_colours, Rows& rows) {
  rows[0].emplace_back();
  std::size_t at = 1;
  for (const MemberStatus& member : status.members) {
    if (!member.steps || at == rows.size()) continue;
    const std::string letters = letters_of(*member.steps, count);
    rows[at++].push_back(has_colours ? coloured(letters) : letters);
  }
}

std::string aligned_rows(const Rows& rows) {
  std::vector<bool> is_word(rows[0].size(), false);
  is_word.back() = rows[0].back().empty();
  return table_of(rows, "  ", is_word);
}

// Numbers stand at the right, so all lines are equally long.
std::size_t width_of(const Rows& rows) {
  return aligned_rows(rows).find('\n');
}

}  // namespace

std::string letters_of(const StepFigures& figures, std::size_t width) {
  const auto all =
      std::max<std::int64_t>(std::accumulate(figures.bars.begin(), figures.bars.end(), std::int64_t{0}), 1);
  std::array<std::size_t, kBars> cells{};
  std::array<double, kBars> rest{};
  std::size_t used = 0;
  for (std::size_t bar = 0; bar < kBars; ++bar) {
    const double exact = static_cast<double>(width) * static_cast<double>(figures.bars[bar]) / static_cast<double>(all);
    cells[bar] = static_cast<std::size_t>(exact);
    rest[bar] = exact - std::floor(exact);
    used += cells[bar];
  }
  for (; used < width; ++used) {  // the largest remainders
    const auto largest = std::ranges::max_element(rest);
    ++cells[static_cast<std::size_t>(largest - rest.begin())];
    *largest = -1;
  }
  std::string text;
  for (std::size_t bar = 0; bar < kBars; ++bar) text += std::string(cells[bar], kLetterOf[bar]);
  return text;
}

std::string straggler_text(const Straggler& straggler) {
  const std::string cost = percent(straggler.exposed) + " of the time the ranks wait for one another";
  if (straggler.rank < 0 && straggler.host.empty()) {
    return cost + (straggler.when == When::kWithData
                       ? ": steps take as long as their data are (correlation " + fixed(straggler.correlation, 2) + ")"
                       : ", for no single rank");
  }
  return cost + ", " + percent(straggler.share) + " of that for " + subject_of(straggler) + " late " +
         when_of(straggler) + ", by " + milliseconds(straggler.late.count()) + " ms; " + sentence_of(straggler);
}

std::string steps_text(const JobStatus& status, const TextView& view) {
  std::vector<std::size_t> columns = columns_of(status);
  std::string text = legend_of(columns, view.width);
  Rows rows = rows_of(status, columns);
  if (rows.size() == 1) return "";
  while (view.width > 0 && columns.size() > kFewestColumns && width_of(rows) + kFewestLetters + 2 > view.width) {
    columns.erase(std::ranges::min_element(columns, {}, [&](std::size_t bar) { return share_of(status, bar); }));
    rows = rows_of(status, columns);
  }
  std::size_t letters = kLetters;
  if (view.width > 0) {
    const std::size_t used = std::min(width_of(rows) + 2, view.width);
    letters = std::clamp(view.width - used, kFewestLetters, kMostLetters);
  }
  add_letters(status, letters, view.has_colours, rows);
  if (!status.late.empty()) text += (view.is_top ? "\n  " : "  ") + printable(status.late) + "\n";
  return aligned_rows(rows) + (view.width > 0 ? folded(text, view.width) : text);
}

std::string summary_text(const JobStatus& status) {
  const std::string table = steps_text(status);
  if (table.empty()) return "";
  double samples = 0;
  std::int64_t steps = 0, time = 0, useful = 0;
  bool are_known = true;
  for (const MemberStatus& member : status.members) {
    if (!member.steps) continue;
    const StepFigures& one = *member.steps;
    steps = std::max(steps, one.steps);
    time += one.step * one.steps;
    for (const Bar bar : {Bar::kForward, Bar::kBackward, Bar::kOptimizer})
      useful += one.bars[index_of(bar)] * one.steps;
    are_known = are_known && is_known(one, index_of(Bar::kBackward));
    samples += one.samples_per_s.value_or(0);
  }
  std::string text = std::to_string(status.members.size()) + (status.members.size() == 1 ? " rank, " : " ranks, ") +
                     grouped(static_cast<double>(steps)) + " steps";
  if (samples > 0) text += ", " + grouped(samples) + " samples/s";
  if (are_known && time > 0)
    text += ", " + percent(static_cast<double>(useful) / static_cast<double>(time)) +
            " of the time in forward, backward and optimizer";
  return text + "\n" + table;
}

}  // namespace horo::tools
