// The command line of horo checkpoint.
#pragma once

#include <CLI/CLI.hpp>

#include "tools/horo/checkpoint/command.h"

namespace horo::tools {

// Adds the subcommand to `app`. It fills `options`, which outlives the app.
void add_checkpoint(CLI::App& app, CheckpointOptions& options);

// Carries out what was chosen. Returns the exit code.
int run_checkpoint_command(const CLI::App& chosen, const CheckpointOptions& options);

}  // namespace horo::tools
