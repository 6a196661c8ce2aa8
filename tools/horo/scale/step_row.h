// StepRow: one line of HORO_STEPS, which says where the wall time of one step of one rank went. Only this file and its
// source know how such a line and the names of the files look.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "horo/steps/step_record.h"

namespace horo::tools {

using OptionalNs = std::optional<std::int64_t>;

// Times are nanoseconds of the monotonic clock of the rank's host.
struct StepRow {
  std::int64_t rank = 0, step = 0;
  std::int64_t begin = 0, time = 0;
  std::array<OptionalNs, kBars> bars{};  // none: not known, and part of another bar
  // Beside the bars.
  std::int64_t hidden_transfer = 0;
  OptionalNs gc, run_queue;
  bool is_timed = true;  // false: it is of a device, whose times are not known
  std::optional<std::int64_t> samples, work;
  std::map<std::int64_t, std::int64_t> late;  // by rank: how much of this rank's skew it has caused
};

// A rank says that it has left out lines, because they came faster than the disk.
struct LeftOut {
  std::int64_t lines = 0;
};

struct StepLine {
  std::optional<StepRow> row;
  LeftOut left_out;
  std::string error;  // what is wrong with the line; empty: nothing
};

// What the rank has recorded, as far as the row has it.
StepRecord record_of(const StepRow& row);

// The line without its end. Bars that do not add up to the step are an error.
StepLine parse_step_line(std::string_view line);

// The value of HORO_STEPS in a folder, and the file in which this rank then writes.
std::string steps_setting_of(const std::string& folder);
std::string steps_file_of(const std::string& folder, int rank);

}  // namespace horo::tools
