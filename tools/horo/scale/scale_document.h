// ScaleDocument: everything that scale.json has. The text and the page are made of it alone.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "tools/horo/scale/run_data.h"
#include "tools/horo/scale/scale_plan.h"
#include "tools/horo/scale/scale_table.h"

namespace horo::tools {

// In the order in which it is written.
using ScaleJson = nlohmann::ordered_json;

struct ScaleDocument {
  std::string version;               // of horo
  std::vector<std::string> command;  // as given; no environment
  std::int64_t started_s = 0;        // since 1970
  int cores = 0;
  std::string model, kernel;
  ScalePlan plan;
  std::optional<std::int64_t> samples;  // of a rank and step, or with strong scaling of a step, at every size
  ScaleTable table;
  std::vector<std::string> notes;  // what a reader has to know, in sentences
  std::vector<RunData> runs;       // written, not read again
};

// Bytes of texts that are no UTF-8 are replaced.
ScaleJson to_json(const ScaleDocument& document);

// Without the runs. Throws std::invalid_argument: it is no such document.
ScaleDocument document_from(const ScaleJson& json);

}  // namespace horo::tools
