// Straggler: which rank, or which host's ranks, the others wait for, when, and what it does meanwhile. Pure: from the
// last steps of ranks, whose ends are on one clock. It is given only if the waits for late ranks cost something, and
// each part only with evidence for it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "horo/steps/job_times.h"
#include "horo/steps/step_record.h"

namespace horo {

struct RankSteps {
  int rank = -1;
  std::vector<StepRecord> steps{};     // ascending
  std::vector<TimeSpan> stopped = {};  // the process was stopped (SIGSTOP, a debugger)
  int host = 0;                        // equal for ranks of one host
};

enum class When : std::uint8_t { kAlways, kPeriodic, kWithData, kAtRandom };

// What a late rank does: a bar, or evidence beside the bars.
enum class Cause : std::uint8_t { kNotExplained, kBar, kCollection, kNoCore, kStopped };

struct Straggler {
  int rank = -1;            // that the others wait for; -1: no single one
  std::vector<int> host{};  // or the ranks of a host, several that are late alike, if `rank` is -1
  double exposed = 0;       // share of the ranks' time in which they wait for a late rank
  double share = 0;         // of these waits, for `rank` or `host`
  Duration late{};   // how long the median rank waits for it where it is last; half of the waits are longer delays
  double steps = 0;  // share of the steps in which it is late by at least half of that
  When when = When::kAtRandom;
  int period = 0;          // kPeriodic: steps
  double correlation = 0;  // kWithData: of the time of a step with its data, by rank (Spearman)
  Cause cause = Cause::kNotExplained;
  Bar bar = Bar::kBetween;  // kBar
  Duration excess{};        // how much more of it than the median of the other ranks, in a late step, in the mean
};

inline constexpr double kLeastExposed = 0.02;   // below that no rank is blamed
inline constexpr double kMostOfIt = 0.8;        // what a cause has to cover
inline constexpr std::size_t kFewestSteps = 8;  // that all ranks have; with fewer none is named

// Nothing: there are too few steps, or the ranks wait for one another less than kLeastExposed of their time.
std::optional<Straggler> find_straggler(std::span<const RankSteps> ranks);

}  // namespace horo
