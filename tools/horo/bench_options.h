// The command line of horo bench.
#pragma once

#include <CLI/CLI.hpp>

#include "tools/horo/bench/command.h"

namespace horo::tools {

// Adds the subcommand to `app`. It fills `options`, which outlives the app.
void add_bench(CLI::App& app, BenchOptions& options);

}  // namespace horo::tools
