// All worlds are started once. Their ranks sleep until the coordinator gives their world a turn; no two worlds run at
// the same time. A round is a turn of each contestant, the first one rotating, and a measurement of the machine's
// limit.
#include "bench/against/comparison.h"

#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <iostream>
#include <map>
#include <sstream>
#include <stdexcept>

#include "bench/against/limits.h"
#include "bench/against/quiet.h"
#include "bench/against/scores.h"
#include "bench/peers/harness.h"
#include "horo/horo.h"
#include "tools/horo/bench/lists.h"
#include "tools/horo/bench/world.h"
#include "tools/horo/machine/cores.h"
#include "tools/horo/machine/facts.h"
#include "tools/horo/run/guard.h"

namespace horo::bench {
namespace {

constexpr double kTurnSeconds = 0.1;
constexpr double kTrialSeconds = 0.02;
constexpr double kFewestOperations = 3;
constexpr double kMostOperations = 1e6;
constexpr double kMostTimedAlone = 500;

struct Turn {
  double seconds = 0;  // median over operations of the slowest rank's time
  std::int64_t wrong = 0;
};

Turn run_turn(World& world, std::size_t operations) {
  std::vector<double> slowest;
  Turn turn;
  for (const std::string& answer : world.request("run " + std::to_string(operations))) {
    std::istringstream words(answer);
    std::string word;
    std::int64_t wrong = 0;
    words >> word >> wrong;
    turn.wrong += wrong;
    std::size_t i = 0;
    for (double seconds = 0; words >> seconds; ++i) {
      if (i == slowest.size()) slowest.push_back(0);
      slowest[i] = std::max(slowest[i], seconds);
    }
    if (word != "times" || i == 0) throw std::runtime_error(world.name() + " answered: " + answer);
  }
  turn.seconds = tools::median(slowest);
  return turn;
}

std::size_t operations_in(double seconds, double of_one, std::size_t bytes) {
  const double most = bytes < HARNESS_TIMED_ALONE_BYTES ? kMostOperations : kMostTimedAlone;
  return static_cast<std::size_t>(std::clamp(seconds / of_one, kFewestOperations, most));
}

// The number of operations that fill a turn. It also warms the caches, pages and connections of the world.
std::size_t calibrate(World& world, std::size_t bytes) {
  const double first = run_turn(world, static_cast<std::size_t>(kFewestOperations)).seconds;
  const double second = run_turn(world, operations_in(kTrialSeconds, first, bytes)).seconds;
  return operations_in(kTurnSeconds, second, bytes);
}

// The mean over ranks. A single rank's value depends on which shared pages it touched, because the kernel divides a
// shared page among the processes that touched it.
double memory_mib(World& world) {
  double sum = 0;
  const std::vector<std::string> answers = world.request("memory");
  for (const std::string& answer : answers) {
    std::istringstream words(answer);
    std::string word;
    double bytes = 0;
    words >> word >> bytes;
    sum += bytes / (1 << 20);
  }
  return sum / static_cast<double>(answers.size());
}

class Comparison {
 public:
  Comparison(const ComparisonOptions& options, std::vector<Contestant> contestants, const std::string& drivers)
      : options_(options),
        contestants_(std::move(contestants)),
        drivers_(drivers),
        hosts_(options.hosts.empty() ? HostList() : HostList(options.hosts, options.interface)) {}

  void run(int ranks) {
    const Environment environment(drivers_, hosts_);
    worlds_.clear();
    for (const Contestant& contestant : contestants_) {
      worlds_.push_back(std::make_unique<World>(contestant, ranks, environment));
    }
    attach_all(environment, worlds_);
    for (const auto& world : worlds_) versions_[world->name()] = world->version();
    for (const std::string& dtype : tools::words_of("--dtype", options_.dtypes, tools::words_for_dtype())) {
      std::cout << "# " << options_.collective << " of " << dtype << ", " << ranks << " ranks on "
                << (hosts_.are_namespaces() ? std::to_string(hosts_.size()) + " hosts, " : "") << tools::usable_cores()
                << " cores; us: median of " << options_.rounds << " rounds\n"
                << table_head(contestants_) << std::flush;
      for (const std::size_t bytes : tools::sizes_of("--sizes", options_.sizes)) {
        measure({ranks, options_.collective, dtype, bytes});
      }
    }
    worlds_.clear();
  }

  const std::vector<Row>& rows() const { return rows_; }
  std::vector<std::pair<std::string, std::string>> versions() const { return {versions_.begin(), versions_.end()}; }

 private:
  struct Entry {
    World* world = nullptr;
    std::size_t operations = 0;  // of a turn
    Row row{};
  };

  // The contestants that support the cell, calibrated.
  std::vector<Entry> entries_for(const Cell& cell) {
    std::vector<Entry> all;
    const std::string task = "task " + cell.collective + " " + cell.dtype + " " + std::to_string(cell.bytes);
    for (const auto& world : worlds_) {
      const std::vector<std::string> answers = world->request(task);
      const auto no =
          std::find_if(answers.begin(), answers.end(), [](const auto& answer) { return answer != "ready"; });
      if (no != answers.end()) {
        std::cout << "# " << tools::size_text(cell.bytes) << ": without " << world->name() << ": " << *no << "\n";
      } else {
        Entry& entry = all.emplace_back();
        entry.world = world.get();
        entry.row.contestant = world->contestant();
        entry.row.cell = cell;
      }
    }
    for (Entry& each : all) each.operations = calibrate(*each.world, cell.bytes);
    return all;
  }

  void measure(const Cell& cell) {
    std::vector<Entry> all = entries_for(cell);
    MemoryLimit memory(cell.bytes, cell.ranks);
    for (int round = 0; round < options_.rounds; ++round) {
      const bool is_quiet = wait_for_quiet(std::chrono::seconds(options_.wait_s));
      for (std::size_t i = 0; i < all.size(); ++i) {
        measure_turn(all[(i + static_cast<std::size_t>(round)) % all.size()], is_quiet);
      }
      measure_limits(all, cell, memory);
    }
    std::vector<Row> rows;
    for (Entry& each : all) {
      if (each.row.contestant.is_horo()) each.row.memory_mib = memory_mib(*each.world);
      rows.push_back(std::move(each.row));
    }
    add_ratios(rows);
    std::cout << table_line(cell, contestants_, rows) << std::flush;
    rows_.insert(rows_.end(), rows.begin(), rows.end());
  }

  static void measure_turn(Entry& entry, bool is_quiet) {
    const Turn turn = run_turn(*entry.world, entry.operations);
    entry.row.times_us.push_back(turn.seconds * 1e6);
    entry.row.wrong += turn.wrong;
    entry.row.quiet_rounds += is_quiet ? 1 : 0;
  }

  void measure_limits(std::vector<Entry>& all, const Cell& cell, MemoryLimit& memory) {
    if (cell.collective != "all_reduce" || hosts_.are_namespaces()) return;  // no limit is defined
    const double memory_us = memory.measure() * 1e6;
    const auto is_tcp = [](const Entry& entry) { return entry.row.contestant.path == "tcp"; };
    const double socket_us = std::any_of(all.begin(), all.end(), is_tcp) ? sockets_.measure(cell.bytes) * 1e6 : 0;
    for (Entry& each : all) each.row.limits_us.push_back(is_tcp(each) ? socket_us : memory_us);
  }

  const ComparisonOptions& options_;
  const std::vector<Contestant> contestants_;
  const std::string drivers_;
  const HostList hosts_;
  std::vector<std::unique_ptr<World>> worlds_;
  SocketLimit sockets_;
  std::map<std::string, std::string> versions_;
  std::vector<Row> rows_;
};

std::vector<Contestant> contestants_of(const ComparisonOptions& options) {
  std::vector<Contestant> contestants;
  for (const std::string& word : tools::words_of("--against", options.peers, peer_words())) {
    contestants.push_back(peer_named(word));
  }
  for (const std::string& path : tools::words_of("--paths", options.paths, path_words())) {
    contestants.push_back({"horo", path});
  }
  return contestants;
}

std::string default_drivers() {
  return (std::filesystem::read_symlink("/proc/self/exe").parent_path() / "peers").string();
}

std::string summary(const std::vector<Row>& rows) {
  std::int64_t wrong = 0;
  int loud = 0;
  for (const Row& row : rows) {
    wrong += row.wrong;
    loud += static_cast<int>(row.times_us.size()) - row.quiet_rounds;
    if (row.wrong > 0) {
      std::cout << "# WRONG RESULTS: " << row.contestant.name() << ", " << tools::size_text(row.cell.bytes) << ": "
                << row.wrong << " elements\n";
    }
  }
  return (wrong == 0 ? "# every checked result is right\n" : "") +
         (loud == 0 ? std::string("# the machine was quiet before every round\n")
                    : "# NOT QUIET: " + std::to_string(loud) +
                          " turns were in rounds that began while other processes used the machine\n");
}

int run_comparison(const ComparisonOptions& options, const std::vector<std::string>& arguments) {
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);  // a signal ends this process; the guard then ends all others
  // Options are checked before any process is started.
  const std::vector<int> worlds = tools::worlds_of(options.ranks);
  tools::sizes_of("--sizes", options.sizes);
  tools::words_of("--dtype", options.dtypes, tools::words_for_dtype());
  Comparison comparison(options, contestants_of(options),
                        options.drivers.empty() ? default_drivers() : options.drivers);
  std::cout << "# horo " << kVersion << " on " << tools::cpu_model() << ", " << tools::usable_cores() << " cores, "
            << tools::kernel_release() << "; load average at the start " << tools::fixed(tools::load_average(), 2)
            << "\n# ratio: median (least..most) over rounds of the best peer's time divided by horo's\n";
  for (const int ranks : worlds) comparison.run(ranks);
  std::cout << summary(comparison.rows()) << std::flush;
  const ComparisonReport report{arguments, comparison.versions(), comparison.rows()};
  if (!options.json_file.empty()) write_json(options.json_file, report);
  if (!options.csv_file.empty()) write_csv(options.csv_file, report);
  return std::any_of(report.rows.begin(), report.rows.end(), [](const Row& row) { return row.wrong > 0; }) ? 1 : 0;
}

}  // namespace

int compare(const ComparisonOptions& options, const std::vector<std::string>& arguments) {
  const auto guarded = [&](int) {
    try {
      return run_comparison(options, arguments);
    } catch (const std::invalid_argument& error) {
      std::cerr << "horo-bench: " << error.what() << "\n";
      return 2;
    } catch (const std::exception& error) {
      std::cerr << "horo-bench: " << error.what() << "\n";
      return 1;
    }
  };
  return tools::run_guarded("horo-bench", guarded);
}

}  // namespace horo::bench
