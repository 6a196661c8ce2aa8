// What a reader of the figures has to know about them, in sentences.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tools/horo/scale/run_data.h"
#include "tools/horo/scale/scale_plan.h"
#include "tools/horo/scale/scale_table.h"

namespace horo::tools {

// The samples of a rank and step at every size (weak scaling) or of a step of all ranks (strong).
struct SamplesCheck {
  std::optional<std::int64_t> samples;  // the same at every size
  std::string error;                    // they differ; empty: they agree, or are not known
};
SamplesCheck check_samples(std::span<const RunData> runs, bool is_strong);

// "failed with 4 ranks: ...; 1 and 2 are shown", "4 ranks on 2 cores: ...".
std::vector<std::string> findings_of(std::span<const RunData> runs, const ScaleTable& table, const ScalePlan& plan,
                                     int cores);

}  // namespace horo::tools
