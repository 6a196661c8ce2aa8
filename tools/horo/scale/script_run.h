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

// For --grace of the command: longer than this process waits, so that it alone decides.
inline constexpr int kNoticeSeconds = 60;

// Blocks until no process of the run is left. When it has its steps, it gets SIGTERM, the notice to its ranks, which
// leave after one and the same step. After three steps, at least 2 s and at most 10 s, it gets a second one, which it
// passes on to those that are left, and kills them 3 s later. Throws StartFailed or std::system_error. This process
// must have one thread only.
ScriptEnd run_script(const ScriptOrder& order);

}  // namespace horo::tools
