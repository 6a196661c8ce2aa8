// The command line of horo scale.
#pragma once

#include <CLI/CLI.hpp>

#include "tools/horo/scale/command.h"

namespace horo::tools {

// Adds the subcommand to `app`. It fills `options`, which outlives the app.
void add_scale(CLI::App& app, ScaleOptions& options);

// Carries out what was chosen. `before` and `program` are the words before and after the first "--".
int run_scale_command(const CLI::App& scale, ScaleOptions& options, const std::vector<std::string>& before,
                      const std::vector<std::string>& program);

}  // namespace horo::tools
