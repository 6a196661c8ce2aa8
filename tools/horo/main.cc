// The command line of the horo executable. Only this file, cli_words.h and bench_options.h include CLI11.
#include <fcntl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <iostream>
#include <sstream>
#include <stdexcept>
#include <string_view>

#include "horo/base/settings.h"
#include "horo/base/version.h"
#include "tools/horo/bench/command.h"
#include "tools/horo/bench_options.h"
#include "tools/horo/checkpoint_options.h"
#include "tools/horo/cli_words.h"
#include "tools/horo/conformance/conformance.h"
#include "tools/horo/doctor/doctor.h"
#include "tools/horo/run/host_command.h"
#include "tools/horo/run/hosts_launch.h"
#include "tools/horo/run/lines.h"
#include "tools/horo/run/remedies.h"
#include "tools/horo/run/resize_command.h"
#include "tools/horo/run/run_options.h"
#include "tools/horo/run/run_words.h"
#include "tools/horo/run/status_command.h"
#include "tools/horo/run/why_command.h"
#include "tools/horo/scale_options.h"
#include "tools/horo/service_command.h"
#include "tools/horo/timeline/merge.h"

namespace horo::tools {
namespace {

constexpr int kUsage = 2;           // exit code of a wrong command line
constexpr int kMostResize = 1'024;  // ranks of a host
constexpr double kLeastProgressSeconds = 0.1;
constexpr double kMostStartSeconds = 604'800;  // a week, as HORO_START_TIMEOUT_MS

struct Options {
  RunOptions run;
  BenchOptions bench;
  OpOptions op;
  CodecOptions codec;
  StatusOptions status;
  WhyOptions why;
  ResizeOptions resize;
  RendezvousCommand rendezvous;
  AgentCommand agent;
  MergeOptions merge;
  ScaleOptions scale;
  CheckpointOptions checkpoint;
  bool settings = false;
  bool json = false;
};

void add_world_options(CLI::App& run, RunOptions& options) {
  run.add_option("-n,--ranks,--num-proc", options.ranks, "ranks on this host; -np means the same");
  const std::string by_ssh = "Several hosts (this horo run starts the others by ssh)";
  run.add_option("-H,--hosts", options.hosts, "node1:4,node2:4: hosts and their ranks; -n is the number of all ranks")
      ->group(by_ssh);
  run.add_option("--hostfile", options.host_file, "a file of hosts, with lines such as: node1 slots=4")->group(by_ssh);
  run.add_option("-p,--ssh-port", options.ssh_port, "of the other hosts")->check(CLI::Range(1, 65'535))->group(by_ssh);
  run.add_option("-i,--ssh-identity-file", options.ssh_identity, "a private key for ssh")->group(by_ssh);
  run.add_flag("--part", options.is_part)->group("");  // horo host gives it
  const std::string hosts = "Several hosts (one horo run on each)";
  run.add_option("--nnodes", options.nodes, "number of hosts")->group(hosts);
  run.add_option("--node-rank", options.node_rank, "index of this host, from 0")->group(hosts);
  run.add_option("--addr", options.addr, "HOST:PORT where rank 0 listens, an address of host 0")->group(hosts);
  run.add_option("--key-file", options.key_file,
                 "file of 32 random bytes, private (mode 0600 or 0400) or of root, the same on all hosts")
      ->group(hosts);
  run.add_option("--ranks-per-node", options.ranks_per_node, "ranks of each host, as in 2,1; instead of -n")
      ->group(hosts);
}

void add_elastic_options(CLI::App& run, RunOptions& options) {
  const std::string elastic = "Elastic jobs (the job goes on without ranks that fail)";
  run.add_option("--min-np,--min-num-proc", options.min_ranks, "go on with as few as this number of ranks")
      ->group(elastic);
  run.add_option("--max-np,--max-num-proc", options.max_ranks,
                 "horo resize may start ranks up to this number (default: -n)")
      ->group(elastic);
  run.add_option("--restarts", options.restarts,
                 "replace a lost rank, so often in 10 min for each place; the script has a horo.elastic.State "
                 "(default: 5; 0: never)")
      ->group(elastic);
  run.add_option("--cool-down", options.cool_down_s,
                 "seconds without a new rank in a place after its --restarts (default: 600)")
      ->group(elastic);
  run.add_option("--rendezvous", options.rendezvous,
                 "with --nnodes: HOST:PORT of a horo rendezvous; without it host 0 runs one, at the port after --addr")
      ->group(elastic);
  run.add_option("--evict-after", options.evict_after_s,
                 "seconds after which a rank that is stopped or does not answer is given up (default: 10)")
      ->check(positive())
      ->group(elastic);
  run.add_option("--park-timeout", options.park_timeout_s,
                 "seconds after which a job with too few ranks is ended (default: 60)")
      ->check(positive())
      ->group(elastic);
  run.add_option("--grace", options.grace_s,
                 "seconds from SIGTERM, a notice to the ranks of this host, to their end (elastic: 30; static, one "
                 "host: 0, at once)")
      ->group(elastic);
}

void add_run(CLI::App& app, RunOptions& options) {
  CLI::App* run =
      app.add_subcommand("run", "Run a program on several ranks: horo run -n 4 [OPTIONS] [--] PROGRAM [ARGUMENTS]");
  add_world_options(*run, options);
  run->add_option("-x,--env", options.variables,
                  "NAME=VALUE for the ranks, or NAME to pass on its value; may be repeated")
      ->allow_extra_args(false);
  run->add_option("--log-level", options.log_level, "what the ranks log: warning, info, debug ... (HORO_LOG_LEVEL)");
  run->add_option("--timeline", options.timeline, "file of what the ranks do when (HORO_TIMELINE; docs/timeline.md)");
  run->add_option("--config", options.config, "file of options, one on each line: num-proc: 4")->group("Options");
  run->add_option("--cwd", options.cwd, "working directory of the ranks");
  run->add_option("--bind-to", options.bind_to,
                  "core: bind each rank to its share of the cores; none; auto: core if there are enough cores")
      ->capture_default_str();
  run->add_option("--output-dir,--output-filename", options.output_dir,
                  "also write the output of rank N to rank.N.out and rank.N.err in this folder");
  run->add_option("--restart-from-checkpoint", options.restarts_from_checkpoint,
                  "start all ranks again, so often, when all have ended with failures, each time only after a new "
                  "checkpoint (default: 0)");
  run->add_option("--timeout", options.timeout_s, "seconds after which the job is ended with exit code 124")
      ->check(positive());
  run->add_option("--start-timeout", options.start_timeout_s, "seconds for all ranks to connect (default: 30)")
      ->check(CLI::Range(0.001, kMostStartSeconds));
  add_elastic_options(*run, options);
  run->add_flag("--replace-gloo", options.replace_gloo,
                "torch.distributed: a process group that the program asks for as \"gloo\" is made by horo");
  run->add_flag("-v,--verbose", options.verbose, "print the process and the cores of each rank, and when it ends");
  run->add_option("--progress", options.progress_s,
                  "print a line each so many seconds: the step, steps and samples per second, the newest checkpoint")
      ->check(CLI::Range(kLeastProgressSeconds, kMostStartSeconds));
  run->add_flag("--summary,!--no-summary", options.summary,
                "print at the end where the time of the steps went (default: on a terminal; docs/scaling.md)");
  run->add_flag("--dry-run", options.dry_run, "print the commands and start nothing");
  run->prefix_command();  // all arguments after the first that is not an option belong to the program
  run->footer(
      R"(Each line of output is prefixed with "[rank] ". Ctrl-C is forwarded to the ranks; a second Ctrl-C kills
them. When a rank fails, the others have 5 s to end; then they get SIGTERM, and SIGKILL 3 s later. At the end
the first failure is reported. All processes that the ranks started end with the job. If OMP_NUM_THREADS is
not set, the ranks get cores / ranks; sums inside torch depend on it. Standard input reaches every rank, unless it
is a terminal. torchrun's options (--nproc-per-node, --standalone, -m, ...) and a bare train.py are understood.

Exit code: that of the rank that failed first, or 128 + its signal; 124 timeout; 126 or 127 the program cannot
be started; 2 wrong usage.

Examples:
  horo run -n 4 python train.py --epochs 3
  horo run -H node1:4,node2:4 python train.py
  horo run -n 2 --nnodes 2 --node-rank 0 --addr 10.0.0.1:29400 --key-file key python train.py
A key: head -c 32 /dev/urandom > key; chmod 600 key)");
}

// Only a "--" before the program belongs to horo run; the program's arguments may contain others.
int run(RunOptions& options, const CLI::App& app, const std::vector<std::string>& after_dashes, bool has_dashes) {
  std::vector<std::string>& command = options.command;
  command = app.remaining();
  if (!command.empty() && command.front().starts_with("-")) {
    throw std::invalid_argument("unknown option " + command.front() + "; horo run --help names all");
  }
  if (!command.empty() && has_dashes) command.emplace_back("--");
  command.insert(command.end(), after_dashes.begin(), after_dashes.end());
  if (const std::optional<HostsLaunch> start = hosts_launch_of(options)) {
    if (!options.dry_run) return launch_hosts(*start);
    print_hosts_plan(*start);
    return 0;
  }
  const Launch start = launch_of(options);
  if (!options.dry_run) return launch(start);
  print_plan(start);
  return 0;
}

void add_doctor(CLI::App& app, Options& options) {
  CLI::App* doctor =
      app.add_subcommand("doctor", "Report the build, this machine, the settings, and problems with their remedies");
  doctor->add_flag("--json", options.json, "print the report as JSON");
  doctor->add_flag("--settings", options.settings, "only print docs/settings.md: all settings and their values");
  doctor->footer("Exit code 0: no problem; 1: problems.");
}

void add_status(CLI::App& app, StatusOptions& options) {
  CLI::App* status = app.add_subcommand("status", "Show the running jobs of horo run: ranks, progress and events");
  status->add_option("JOB", options.job, "a job of the list, or the process of its horo run")
      ->check(CLI::Range(1, 1 << 22));  // the greatest number of a process
  status->add_flag("--json", options.json, "print the state as JSON; docs/status.md describes it");
  status->add_option("--watch", options.watch_s, "refresh every so many seconds (default: 2) until the job ends")
      ->expected(0, 1)
      ->default_str("2")
      ->check(CLI::Range(0.1, 3600.));
  status->footer("Exit code 0: found; 1: there is no such job, or it does not answer; 2: wrong usage.");
}

void add_top(CLI::App& app, StatusOptions& options) {
  CLI::App* top =
      app.add_subcommand("top", "Show where the steps of a running job go, each second, and its last events");
  top->add_option("JOB", options.job, "a job of the list, or the process of its horo run")
      ->check(CLI::Range(1, 1 << 22));
  top->add_option("--watch", options.watch_s, "refresh every so many seconds (default: 1)")
      ->check(CLI::Range(0.1, 3600.));
  top->footer("docs/scaling.md explains the parts of a step. Exit code: as of horo status.");
}

void add_why(CLI::App& app, WhyOptions& options) {
  CLI::App* why = app.add_subcommand("why", "Tell which rank of a running job waits for which, and where both are");
  why->add_option("JOB", options.job, "a job that horo status shows, or the process of its horo run")
      ->check(CLI::Range(1, 1 << 22));
  why->add_flag("--json", options.json, "print the answer as JSON; docs/status.md describes it");
  why->footer("Exit code 0: an answer; 1: there is no such job, or it does not answer; 2: wrong usage.");
}

void add_resize(CLI::App& app, ResizeOptions& options) {
  CLI::App* resize = app.add_subcommand("resize", "Start more ranks of a running elastic job: horo resize N [JOB]");
  resize->add_option("N", options.ranks, "the number of ranks that the job is to have, at most its --max-np")
      ->check(CLI::Range(1, kMostResize))
      ->required();
  resize->add_option("JOB", options.job, "a job that horo status shows, or the process of its horo run")
      ->check(CLI::Range(1, 1 << 22));  // the greatest number of a process
  resize->footer("Exit code 0: done; 1: there is no such job, or it refuses; 2: wrong usage.");
}

void add_rendezvous(CLI::App& app, Options& options) {
  CLI::App* rendezvous = app.add_subcommand(
      "rendezvous", "Serve elastic jobs on several hosts, so that all of their hosts may be lost but one");
  rendezvous->add_option("--addr", options.rendezvous.addr, "HOST:PORT to listen at; horo run --rendezvous names it")
      ->required();
  rendezvous->add_option("--key-file", options.rendezvous.key_file, "the file that horo run has");
  rendezvous->add_option("--folder", options.rendezvous.folder, "of what outlives this process; made if it is missing");
  for (CLI::Option* own : {rendezvous->add_option("--memory", options.rendezvous.memory)->delimiter(',')->expected(3),
                           rendezvous->add_option("--home", options.rendezvous.home)}) {
    own->group("");  // horo run gives it
  }
  rendezvous->footer("One job at a time. SIGTERM or SIGINT ends it.");
  app.add_subcommand("host", "")->group("");                     // horo run --hosts starts it
  CLI::App* agent = app.add_subcommand("agent", "")->group("");  // horo run starts it
  agent->add_option("--guard-fd", options.agent.guard_fd)->required();
  agent->add_option("--rendezvous", options.agent.rendezvous)->required();
  agent->add_option("--host", options.agent.host)->required();
  agent->add_option("--incarnation", options.agent.incarnation)->required();
}

void add_codec_conformance(CLI::App& conformance, CodecOptions& options) {
  CLI::App* codec = conformance.add_subcommand("codec", "A codec: a horo_codec in a shared library");
  codec->add_option("library", options.library, "the library: ./mine.so")->required();
  codec->add_option("symbol", options.symbol, "the name of the horo_codec in it")->required();
  const auto part = [&](const char* name, double& value, const char* what) {
    codec->add_option(name, value, what)->check(CLI::NonNegativeNumber)->capture_default_str();
  };
  part("--relative", options.claim.relative, "claimed error: per unit of the value");
  part("--of-block", options.claim.of_block, "claimed error: per unit of the largest value in the block");
  part("--absolute", options.claim.absolute, "claimed error: constant part");
  part("--largest", options.claim.largest, "largest value for which the claim holds");
  codec->footer("Exit code 0: no faults; 1: faults, one per line.");
}

void add_conformance(CLI::App& app, Options& all) {
  OpOptions& options = all.op;
  CLI::App* conformance = app.add_subcommand("conformance", "Test a custom operation or codec");
  conformance->require_subcommand(1);
  CLI::App* op = conformance->add_subcommand("op", "An operation: a horo_op in a shared library");
  op->add_option("library", options.library, "the library: ./mine.so")->required();
  op->add_option("symbol", options.symbol, "the name of the horo_op in it")->required();
  op->add_option("--dtype", options.dtypes, "element types that it supports")->delimiter(',')->capture_default_str();
  op->add_option("--counts", options.counts, "numbers of elements that it supports: 1,4,9 for square matrices")
      ->delimiter(',')
      ->capture_default_str();
  op->add_option("--tolerance", options.tolerance,
                 "of float results in another order, relative to the largest number; 0: 16 units in the last place")
      ->check(CLI::NonNegativeNumber);
  op->footer("Exit code 0: no faults; 1: faults, one per line.");
  add_codec_conformance(*conformance, all.codec);
}

void add_timeline(CLI::App& app, MergeOptions& options) {
  CLI::App* timeline = app.add_subcommand("timeline", "Timelines, which ranks write with HORO_TIMELINE");
  timeline->require_subcommand(1);
  CLI::App* merge = timeline->add_subcommand(
      "merge", "Join the files of the ranks for ui.perfetto.dev, and show which rank the others waited for");
  merge->add_option("files", options.files, "the files: trace.json trace.rank1.json ...")->required();
  merge->add_option("-o,--output", options.output, "the joined file")->required();
  merge->add_flag("--json", options.json, "print the summary as JSON");
}

void refuse_comparison(const std::vector<std::string>& arguments) {
  const auto is_against = [](const std::string& word) { return word == "--against" || word.starts_with("--against="); };
  if (arguments.empty() || arguments.front() != "bench") return;
  if (std::none_of(arguments.begin(), arguments.end(), is_against)) return;
  throw std::invalid_argument(
      "bench --against is not part of horo. Comparisons with other libraries are build/release/bench/horo-bench in a "
      "source tree: cmake --preset release && cmake --build --preset release --target horo-bench");
}

int run_command(std::vector<std::string> arguments) {
  CLI::App app{"horo: data-parallel training with the same bits on every rank", "horo"};
  app.require_subcommand(1);
  app.set_help_flag("--help", "print this help and exit; -h means the same");  // see check_words()
  app.set_version_flag("--version", std::string("horo ") + kVersion, "print the version of horo");
  Options options;
  refuse_comparison(arguments);
  add_run(app, options.run);
  add_bench(app, options.bench);
  add_doctor(app, options);
  add_status(app, options.status);
  add_top(app, options.status);
  add_why(app, options.why);
  add_resize(app, options.resize);
  add_rendezvous(app, options);
  add_conformance(app, options);
  add_timeline(app, options.merge);
  add_scale(app, options.scale);
  add_checkpoint(app, options.checkpoint);
  if (!arguments.empty() && arguments.front() == "run") {
    arguments = own_words({arguments.begin() + 1, arguments.end()}, known_options(*app.get_subcommand("run")));
    arguments.insert(arguments.begin(), "run");
  } else {
    check_words(arguments, app);
  }
  const auto dashes = std::find(arguments.begin(), arguments.end(), "--");
  try {
    app.parse(std::vector<std::string>(std::make_reverse_iterator(dashes), arguments.rend()));
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);
    std::cerr << folded("horo: " + text_of(error) + "\n");
    return kUsage;
  }
  const CLI::App* chosen = app.get_subcommands().front();
  if (chosen->get_name() == "doctor") {
    if (!options.settings) return doctor(options.json);
    std::cout << settings_page();
    return 0;
  }
  if (chosen->get_name() == "status") return status(options.status);
  if (chosen->get_name() == "top") return top(options.status);
  if (chosen->get_name() == "why") return why(options.why);
  if (chosen->get_name() == "resize") return resize(options.resize);
  if (chosen->get_name() == "timeline") return merge_timelines(options.merge, std::cout);
  if (chosen->get_name() == "checkpoint") return run_checkpoint_command(*chosen, options.checkpoint);
  if (chosen->get_name() == "rendezvous") return run_rendezvous(options.rendezvous);
  if (chosen->get_name() == "host") return run_host();
  if (chosen->get_name() == "agent") return run_agent(options.agent);
  if (chosen->get_name() == "bench") {
    const auto which = chosen->get_subcommands();
    if (which.empty()) throw std::invalid_argument("bench: expected a subcommand; horo bench --help names all");
    return run_bench(which.front()->get_name(), options.bench, arguments);
  }
  if (chosen->get_name() == "conformance") {
    const bool is_codec = chosen->get_subcommands().front()->get_name() == "codec";
    return is_codec ? codec_conformance(options.codec) : op_conformance(options.op);
  }
  const bool has_dashes = dashes != arguments.end();
  const auto after = has_dashes ? dashes + 1 : dashes;
  if (chosen->get_name() == "scale") {
    return run_scale_command(*chosen, options.scale, {arguments.begin(), dashes}, {after, arguments.end()});
  }
  return run(options.run, *chosen, {after, arguments.end()}, has_dashes);
}

// Opens /dev/null for closed standard streams: otherwise the next opened file would be used as stdout or stderr.
void open_standard_streams() {
  int fd = 0;
  do {
    fd = ::open("/dev/null", O_RDWR);
  } while (fd >= 0 && fd <= 2);
  if (fd > 2) ::close(fd);
}

}  // namespace
}  // namespace horo::tools

int main(int argc, char** argv) {
  const bool is_run = argc > 1 && std::string_view(argv[1]) == "run";
  horo::tools::open_standard_streams();
  try {
    return horo::tools::run_command({argv + 1, argv + argc});
  } catch (const std::invalid_argument& error) {
    std::cerr << horo::tools::folded(std::string("horo: ") + error.what() + "\n");
    return horo::tools::kUsage;
  } catch (const std::exception& error) {
    const std::string text = is_run ? horo::tools::text_with_remedy(error) : error.what();
    std::cerr << horo::tools::folded("horo: " + text + "\n");
    return 1;
  }
}
