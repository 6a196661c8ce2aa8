// The command line of the horo executable. CLI11 is included here and nowhere else. A benchmark that is not one of the
// ranks of a job yet starts itself once per rank, as `horo run` would.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <iostream>
#include <sstream>
#include <stdexcept>

#include "horo/base/settings.h"
#include "tools/horo/bench.h"
#include "tools/horo/doctor.h"
#include "tools/horo/launcher.h"

namespace horo {
namespace {

constexpr int kUsage = 2;  // exit code of a wrong command line
constexpr int kMaxLocalRanks = 1024;

struct Options {
  Launch run;
  std::string ranks;  // worlds to measure: "2,4" or "2..8"
  std::string dtype = "float32";
  std::string order = "canonical";
  AllReduceBench all_reduce;
  AgreeBench agree;
  bool no_header = false;
  bool settings = false;
  bool json = false;
};

std::vector<std::string> words_for_dtype() {
  std::vector<std::string> words;
  for (int i = 0; i < 256; ++i) {
    if (const auto dtype = dtype_from(i); dtype && *dtype != DType::kBool) words.emplace_back(name_of(*dtype));
  }
  return words;
}

DType dtype_of(const std::string& word) {
  for (int i = 0; i < 256; ++i) {
    if (const auto dtype = dtype_from(i); dtype && name_of(*dtype) == word) return *dtype;
  }
  throw std::invalid_argument("--dtype " + word + ": no such type");
}

int parse_ranks(std::string_view text, const std::string& whole) {
  int ranks = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), ranks);
  if (error == std::errc() && end == text.data() + text.size() && ranks >= 1 && ranks <= kMaxLocalRanks) return ranks;
  throw std::invalid_argument("--ranks " + whole + ": expected 4, 2,4 or 2..8, each from 1 to 1024");
}

std::vector<int> worlds_of(const std::string& text) {
  std::vector<int> worlds;
  if (const std::size_t dots = text.find(".."); dots != std::string::npos) {
    const int last = parse_ranks(std::string_view(text).substr(dots + 2), text);
    for (int n = parse_ranks(std::string_view(text).substr(0, dots), text); n <= last; ++n) worlds.push_back(n);
    return worlds;
  }
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) worlds.push_back(parse_ranks(part, text));
  return worlds;
}

void add_run(CLI::App& app, Options& options) {
  CLI::App* run = app.add_subcommand("run", "Run a program on several ranks of this host");
  run->add_option("-n,--ranks", options.run.ranks, "number of ranks")->required()->check(CLI::Range(1, kMaxLocalRanks));
  run->prefix_command();  // what follows the first word that is no option is the program's own
  run->footer("Example: horo run -n 4 python train.py --epochs 3");
}

void add_all_reduce(CLI::App& bench, Options& options) {
  CLI::App* app = bench.add_subcommand("allreduce", "Time and bandwidth of all_reduce by size; checks every result");
  app->add_option("--ranks", options.ranks, "ranks to start (more than one world: 2,4 or 2..8)")->default_str("2");
  app->add_option("--min", options.all_reduce.min_bytes, "smallest size, in bytes or as 64K, 1M")
      ->transform(CLI::AsSizeValue(false))
      ->capture_default_str();
  app->add_option("--max", options.all_reduce.max_bytes, "largest size")
      ->transform(CLI::AsSizeValue(false))
      ->check(CLI::Range(std::size_t{1}, std::size_t{1} << 40))
      ->capture_default_str();
  app->add_option("--dtype", options.dtype, "element type")
      ->check(CLI::IsMember(words_for_dtype()))
      ->capture_default_str();
  app->add_option("--order", options.order, "order of summation")
      ->check(CLI::IsMember({"canonical", "fast"}))
      ->capture_default_str();
  app->add_option("--rounds", options.all_reduce.rounds, "rounds of each size; 0: about half a second's worth")
      ->check(CLI::Range(0, 1'000'000))
      ->capture_default_str();
  app->add_option("--json", options.all_reduce.json_file, "also write the results to this file");
}

void add_bench(CLI::App& app, Options& options) {
  CLI::App* bench = app.add_subcommand("bench", "Measure horo on this machine");
  bench->require_subcommand(1);
  add_all_reduce(*bench, options);
  CLI::App* agree = bench->add_subcommand("agree", "Cost of agreeing on many small tensors per step");
  agree->add_option("--ranks", options.ranks, "worlds to measure")->default_str("2,4");
  agree->add_option("--tensors", options.agree.tensors, "gradients per step")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  agree->add_option("--steps", options.agree.steps, "steps")->check(CLI::Range(1, 100'000))->capture_default_str();
  CLI::App* wire = bench->add_subcommand("wire", "Bytes on the wire against the formula and the kernel's count");
  wire->add_option("--ranks", options.ranks, "worlds to measure")->default_str("2..8");
  wire->add_flag("--no-header", options.no_header)->group("");
}

// The program's own words may hold a "--" as well: only one that comes before them is ours.
int run(Options& options, const CLI::App& app, const std::vector<std::string>& after_dashes, bool has_dashes) {
  std::vector<std::string>& command = options.run.command;
  command = app.remaining();
  if (!command.empty() && command.front().starts_with("-")) {
    throw std::invalid_argument("run: unknown option " + command.front());
  }
  if (!command.empty() && has_dashes) command.emplace_back("--");
  command.insert(command.end(), after_dashes.begin(), after_dashes.end());
  if (command.empty()) throw std::invalid_argument("run: expected a program, as in: horo run -n 4 python train.py");
  return launch(options.run);
}

void add_doctor(CLI::App& app, Options& options) {
  CLI::App* doctor = app.add_subcommand("doctor", "What this machine has and what horo would make of it");
  doctor->add_flag("--json", options.json, "the same as JSON");
  doctor->add_flag("--settings", options.settings, "only print docs/settings.md: every setting and what it may be");
  doctor->footer("Exit code 0: no problem; 1: problems, each with what to do.");
}

int bench_as_rank(const std::string& name, Options& options) {
  Session session(config_from_environment());
  options.all_reduce.dtype = dtype_of(options.dtype);
  options.all_reduce.order = options.order == "fast" ? Order::kFast : Order::kCanonical;
  if (name == "allreduce") return bench_all_reduce(session, options.all_reduce);
  if (name == "agree") return bench_agree(session, options.agree);
  return bench_wire(session, !options.no_header);
}

int bench(const CLI::App& app, Options& options, const std::vector<std::string>& arguments) {
  const std::string name = app.get_name();
  if (std::getenv("HORO_RANK") != nullptr) return bench_as_rank(name, options);
  if (options.ranks.empty()) options.ranks = name == "wire" ? "2..8" : name == "agree" ? "2,4" : "2";
  int result = 0;
  Launch start;
  start.title = "horo bench " + name;
  start.prefixed = false;
  start.command = {std::filesystem::read_symlink("/proc/self/exe").string()};
  start.command.insert(start.command.end(), arguments.begin(), arguments.end());
  for (const int ranks : worlds_of(options.ranks)) {
    start.ranks = ranks;
    result = std::max(result, launch(start));
    if (result > 1) return result;  // no finding: something did not work
    if (name == "wire" && start.command.back() != "--no-header") start.command.emplace_back("--no-header");
  }
  return result;
}

int run_command(const std::vector<std::string>& arguments) {
  CLI::App app{"horo: data-parallel training with the same bits on every rank", "horo"};
  app.require_subcommand(1);
  Options options;
  add_run(app, options);
  add_bench(app, options);
  add_doctor(app, options);
  const auto dashes = std::find(arguments.begin(), arguments.end(), "--");
  try {
    app.parse(std::vector<std::string>(std::make_reverse_iterator(dashes), arguments.rend()));
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kUsage;
  }
  const CLI::App* chosen = app.get_subcommands().front();
  if (chosen->get_name() == "doctor") {
    if (!options.settings) return doctor(options.json);
    std::cout << settings_page();
    return 0;
  }
  if (chosen->get_name() == "bench") return bench(*chosen->get_subcommands().front(), options, arguments);
  const bool has_dashes = dashes != arguments.end();
  const auto after = has_dashes ? dashes + 1 : dashes;
  return run(options, *chosen, {after, arguments.end()}, has_dashes);
}

}  // namespace
}  // namespace horo

int main(int argc, char** argv) {
  try {
    return horo::run_command({argv + 1, argv + argc});
  } catch (const std::invalid_argument& error) {
    std::cerr << "horo: " << error.what() << "\n";
    return horo::kUsage;
  } catch (const std::exception& error) {
    std::cerr << "horo: " << error.what() << "\n";
    return 1;
  }
}
