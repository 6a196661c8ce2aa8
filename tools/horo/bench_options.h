// The command line of horo bench.
#pragma once

#include "tools/horo/bench/command.h"

namespace CLI {
class App;
}

namespace horo::tools {

// Adds the subcommand to `app`. It fills `options`, which outlives the app.
void add_bench(CLI::App& app, BenchOptions& options);

}  // namespace horo::tools
