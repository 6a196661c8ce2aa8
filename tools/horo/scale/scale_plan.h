// ScalePlan: which runs `horo scale run` makes, in which order, and how long they take.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/horo/scale/run_data.h"

namespace horo::tools {

inline constexpr double kNsInSecond = 1e9;

struct PlannedRun {
  int ranks = 0, round = 0;  // round from 1
};

struct ScalePlan {
  std::vector<int> sizes;  // numbers of ranks, ascending
  int rounds = 3;
  std::int64_t run_ns = 0;  // of steps that count, of one run
  bool is_strong = false;

  StepWindow window() const { return {run_ns}; }
  // Interleaved: every round has each size once, so that what changes on the machine meets all sizes.
  std::vector<PlannedRun> runs() const;
  // Cores of each rank, the same at every size: a rank that had more of them alone would look faster there.
  int cores_of_rank(int cores) const;
  // Of all runs, without the starts of the script.
  std::int64_t all_ns() const;
  // The first lines: what is measured, and how long that takes.
  std::string text(int cores) const;
};

// "1,2,4", ascending and each one once. Throws std::invalid_argument.
std::vector<int> sizes_from(const std::string& list);

// "40 s", "1.5 s", "7 min".
std::string time_text(std::int64_t ns);

}  // namespace horo::tools
