#include "tools/horo/scale_options.h"

#include "tools/horo/cli_words.h"

namespace horo::tools {
namespace {

void add_scale_run(CLI::App& scale, ScaleOptions& options) {
  CLI::App* run =
      scale.add_subcommand("run", "Measure a script: horo scale run -n 1,2,4 [OPTIONS] -- PROGRAM [ARGUMENTS]");
  run->add_option("-n,--ranks", options.sizes, "numbers of ranks on this host: 1,2,4")->required();
  run->add_flag("--strong", options.is_strong,
                "the ranks divide one batch, so a step has the same samples at every size; else each rank has its own");
  run->add_option("--seconds", options.seconds, "of steps that count, in each run")
      ->check(positive())
      ->capture_default_str();
  run->add_option("--rounds", options.rounds, "each has one run of every size")
      ->check(CLI::Range(1, 100))
      ->capture_default_str();
  run->add_option("--first-step", options.first_step_s,
                  "seconds from the start of the script to its first step, at most")
      ->check(positive())
      ->capture_default_str();
  run->add_option("--out", options.out, "folder of the results; those of an earlier run in it are replaced")
      ->capture_default_str();
  run->add_option("--cwd", options.cwd, "working folder of the ranks; without it each run has a new one");
  run->add_option("--bind-to", options.bind_to, "as horo run")
      ->check(one_of({"auto", "none", "core"}))
      ->capture_default_str();
  run->footer(
      R"(Each run has a working folder of its own, so that no run finds the checkpoints of another one; words of the
command that name files become absolute. A script sees HORO_SCALE=1. When it has its steps it is ended by SIGTERM.
Results: a table, scale.html and scale.json; docs/scaling.md defines them.

Exit code 0: all sizes were measured; 1: not all, or they cannot be compared; 2: wrong usage.)");
}

}  // namespace

void add_scale(CLI::App& app, ScaleOptions& options) {
  CLI::App* scale = app.add_subcommand("scale", "How a job gets faster with more ranks, and where the rest goes");
  scale->require_subcommand(1);
  add_scale_run(*scale, options);
  CLI::App* report = scale->add_subcommand("report", "Make the table and the page again, from scale.json");
  report->add_option("FOLDER", options.report_folder, "of horo scale run --out")->required();
}

int run_scale_command(const CLI::App& scale, ScaleOptions& options, const std::vector<std::string>& before,
                      const std::vector<std::string>& program) {
  if (scale.get_subcommands().front()->get_name() == "report") return report_scale(options);
  options.program = program;
  options.words = {"horo"};
  options.words.insert(options.words.end(), before.begin(), before.end());
  options.words.emplace_back("--");
  options.words.insert(options.words.end(), program.begin(), program.end());
  return run_scale(options);
}

}  // namespace horo::tools
