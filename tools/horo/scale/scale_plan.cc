#include "tools/horo/scale/scale_plan.h"

#include <algorithm>
#include <charconv>
#include <sstream>
#include <stdexcept>

#include "horo/base/say.h"
#include "tools/horo/machine/facts.h"

namespace horo::tools {
namespace {

constexpr int kMostRanks = 1'024;  // as horo run

std::string counted_text(std::int64_t count, const std::string& noun) {
  return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
}

}  // namespace

std::vector<PlannedRun> ScalePlan::runs() const {
  std::vector<PlannedRun> all;
  for (int round = 1; round <= rounds; ++round) {
    for (const int ranks : sizes) all.push_back({ranks, round});
  }
  return all;
}

int ScalePlan::cores_of_rank(int cores) const {
  return std::max(1, cores / sizes.back());
}

std::int64_t ScalePlan::all_ns() const {
  return static_cast<std::int64_t>(sizes.size()) * rounds * (run_ns + window().warm_up_ns());
}

std::string ScalePlan::text(int cores) const {
  const int share = cores_of_rank(cores);
  std::string text =
      say(counted_text(static_cast<std::int64_t>(sizes.size()), "size"), " x ", counted_text(rounds, "round"), " of ",
          time_text(run_ns), " behind a warm-up of ", StepWindow::kWarmUpSteps, " steps and ",
          time_text(window().warm_up_ns()), ": about ", time_text(all_ns()),
          ", and the starts of the script. Each rank has ", counted_text(share, "core"), " at every size.\n");
  if (sizes.back() > cores) {
    text += say(sizes.back(), " ranks on ", counted_text(cores, "core"),
                ": efficiency says nothing about larger machines\n");
  }
  if (sizes.size() == 1) text += "one size only: there is nothing to compare it with; several are -n 1,2,4\n";
  return text;
}

std::vector<int> sizes_from(const std::string& list) {
  const auto refuse = [&](const std::string& word) {
    throw std::invalid_argument("-n " + list + ": expected numbers of ranks from 1 to " + std::to_string(kMostRanks) +
                                ", as in 1,2,4, not \"" + word + "\"");
  };
  std::vector<int> sizes;
  std::istringstream words(list);
  for (std::string word; std::getline(words, word, ',');) {
    int number = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
    if (error != std::errc() || end != word.data() + word.size() || number < 1 || number > kMostRanks) refuse(word);
    sizes.push_back(number);
  }
  if (sizes.empty()) refuse("");
  std::sort(sizes.begin(), sizes.end());
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  return sizes;
}

std::string time_text(std::int64_t ns) {
  const double seconds = static_cast<double>(ns) / kNsInSecond;
  if (seconds >= 120) return fixed(seconds / 60, 0) + " min";
  std::string text = fixed(seconds, seconds < 10 ? 1 : 0);
  if (text.ends_with(".0")) text.resize(text.size() - 2);
  return text + " s";
}

}  // namespace horo::tools
