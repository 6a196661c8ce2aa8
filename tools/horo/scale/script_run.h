// ScriptRun: one run of the user's script by `horo run`, from its start to its end.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tools/horo/run/events.h"
#include "tools/horo/run/rank_stream.h"
#include "tools/horo/scale/run_watch.h"
#include "tools/horo/scale/steps_files.h"

namespace horo::tools {

struct ScriptOrder {
  std::vector<std::string> command;  // that of horo run, complete
  std::string folder;                // an existing one, for the steps and the output
  std::vector<int> cores;            // that the ranks divide
  int ranks = 0;
  StepWindow window;
  std::int64_t first_step_ns = 0;
  std::function<void(std::int64_t measured_ns)> on_progress;  // a few times a second
};

struct ScriptEnd {
  std::string failure;  // why there are no figures; empty: there may be some
  int interrupt = 0;    // the signal to this process that has ended it; 0: none
};

// Blocks until no process of the run is left. When it has its steps, it gets SIGTERM, which horo run passes on to the
// ranks; 5 s later a second one, after which they are killed. Throws StartFailed or std::system_error. This process
// must have one thread only.
ScriptEnd run_script(const ScriptOrder& order);

}  // namespace horo::tools
