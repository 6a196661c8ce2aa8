// Who has the machine when: all worlds are started once and sleep; one has its turn, and between two turns nobody runs.
// A round is a turn of each, beginning with another one every time, and of the machine's limit.
#include "bench/against/against.h"

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
#include "bench/peers/contest.h"
#include "horo/horo.h"
#include "tools/horo/bench/command.h"
#include "tools/horo/bench/lists.h"
#include "tools/horo/bench/world.h"
#include "tools/horo/machine/cores.h"
#include "tools/horo/run/guard.h"

namespace horo::tools {
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

Turn take_turn(World& world, std::size_t operations) {
  std::vector<double> slowest;
  Turn turn;
  for (const std::string& answer : world.ask("run " + std::to_string(operations))) {
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
    if (word != "times" || i == 0) throw std::runtime_error("bench --against: " + world.name() + " says: " + answer);
  }
  turn.seconds = median(slowest);
  return turn;
}

std::size_t operations_in(double seconds, double of_one, std::size_t bytes) {
  const double most = bytes < CONTEST_ALONE_BYTES ? kMostOperations : kMostTimedAlone;
  return static_cast<std::size_t>(std::clamp(seconds / of_one, kFewestOperations, most));
}

// How many operations make a turn; the caches, pages and connections of the world are warm after it.
std::size_t calibrate(World& world, std::size_t bytes) {
  const double first = take_turn(world, static_cast<std::size_t>(kFewestOperations)).seconds;
  const double second = take_turn(world, operations_in(kTrialSeconds, first, bytes)).seconds;
  return operations_in(kTurnSeconds, second, bytes);
}

// Of a rank, the mean of all: who sums more of the others' shards has touched more of their pages, and his share of
// those is larger, which is no more memory.
double memory_mib(World& world) {
  double sum = 0;
  const std::vector<std::string> answers = world.ask("memory");
  for (const std::string& answer : answers) {
    std::istringstream words(answer);
    std::string word;
    double bytes = 0;
    words >> word >> bytes;
    sum += bytes / (1 << 20);
  }
  return sum / static_cast<double>(answers.size());
}

class Match {
 public:
  Match(const AgainstOptions& options, std::vector<Side> sides, const std::string& peers)
      : options_(options),
        sides_(std::move(sides)),
        peers_(peers),
        hosts_(options.hosts.empty() ? ContestHosts() : ContestHosts(options.hosts, options.interface)) {}

  void play(int ranks) {
    const Venue venue(peers_, hosts_);
    worlds_.clear();
    for (const Side& side : sides_) worlds_.push_back(std::make_unique<World>(side, ranks, venue));
    seat_all(venue, worlds_);
    for (const auto& world : worlds_) versions_[world->name()] = world->version();
    for (const std::string& dtype : words_of("--dtype", options_.dtypes, words_for_dtype())) {
      std::cout << "# " << options_.collective << " of " << dtype << ", " << ranks << " ranks on "
                << (hosts_.are_namespaces() ? std::to_string(hosts_.size()) + " hosts, " : "") << usable_cores()
                << " cores; us: median of " << options_.rounds << " rounds\n"
                << table_head(sides_) << std::flush;
      for (const std::size_t bytes : sizes_of("--sizes", options_.sizes)) {
        play_cell({ranks, options_.collective, dtype, bytes});
      }
    }
    worlds_.clear();
  }

  const std::vector<Row>& rows() const { return rows_; }
  std::vector<std::pair<std::string, std::string>> versions() const { return {versions_.begin(), versions_.end()}; }

 private:
  struct Contestant {
    World* world = nullptr;
    std::size_t operations = 0;
    Row row{};
  };

  std::vector<Contestant> contestants_for(const Cell& cell) {
    std::vector<Contestant> all;
    const std::string task = "task " + cell.collective + " " + cell.dtype + " " + std::to_string(cell.bytes);
    for (const auto& world : worlds_) {
      const std::vector<std::string> answers = world->ask(task);
      const auto no =
          std::find_if(answers.begin(), answers.end(), [](const auto& answer) { return answer != "ready"; });
      if (no != answers.end()) {
        std::cout << "# " << say_size(cell.bytes) << ": without " << world->name() << ", which says: " << *no << "\n";
      } else {
        Contestant& contestant = all.emplace_back();
        contestant.world = world.get();
        contestant.row.side = world->side();
        contestant.row.cell = cell;
      }
    }
    for (Contestant& each : all) each.operations = calibrate(*each.world, cell.bytes);
    return all;
  }

  void play_cell(const Cell& cell) {
    std::vector<Contestant> all = contestants_for(cell);
    MemoryLimit memory(cell.bytes, cell.ranks);
    for (int round = 0; round < options_.rounds; ++round) {
      const bool is_quiet = wait_for_quiet(std::chrono::seconds(options_.wait_s));
      for (std::size_t i = 0; i < all.size(); ++i) {
        play_turn(all[(i + static_cast<std::size_t>(round)) % all.size()], is_quiet);
      }
      note_limits(all, cell, memory);
    }
    std::vector<Row> rows;
    for (Contestant& each : all) {
      if (each.row.side.is_ours()) each.row.memory_mib = memory_mib(*each.world);
      rows.push_back(std::move(each.row));
    }
    judge(rows);
    std::cout << table_line(cell, sides_, rows) << std::flush;
    rows_.insert(rows_.end(), rows.begin(), rows.end());
  }

  static void play_turn(Contestant& contestant, bool is_quiet) {
    const Turn turn = take_turn(*contestant.world, contestant.operations);
    contestant.row.times_us.push_back(turn.seconds * 1e6);
    contestant.row.wrong += turn.wrong;
    contestant.row.quiet_rounds += is_quiet ? 1 : 0;
  }

  void note_limits(std::vector<Contestant>& all, const Cell& cell, MemoryLimit& memory) {
    if (cell.collective != "all_reduce" || hosts_.are_namespaces()) return;  // a line's limit is not this machine's
    const double memory_us = memory.measure() * 1e6;
    const bool has_tcp = std::any_of(all.begin(), all.end(), [](const auto& a) { return a.row.side.path == "tcp"; });
    const double socket_us = has_tcp ? sockets_.measure(cell.bytes) * 1e6 : 0;
    for (Contestant& each : all) each.row.limits_us.push_back(each.row.side.path == "tcp" ? socket_us : memory_us);
  }

  const AgainstOptions& options_;
  const std::vector<Side> sides_;
  const std::string peers_;
  const ContestHosts hosts_;
  std::vector<std::unique_ptr<World>> worlds_;
  SocketLimit sockets_;
  std::map<std::string, std::string> versions_;
  std::vector<Row> rows_;
};

std::vector<Side> sides_of(const AgainstOptions& options) {
  std::vector<Side> sides;
  for (const std::string& word : words_of("--against", options.against, peer_words())) {
    sides.push_back(peer_side(word));
  }
  for (const std::string& path : words_of("--paths", options.paths, path_words())) sides.push_back({"horo", path});
  return sides;
}

std::string default_peers() {
  const auto program = std::filesystem::read_symlink("/proc/self/exe");
  return (program.parent_path() / "../../bench/peers").lexically_normal().string();
}

std::string say_outcome(const std::vector<Row>& rows) {
  std::int64_t wrong = 0;
  int loud = 0;
  for (const Row& row : rows) {
    wrong += row.wrong;
    loud += static_cast<int>(row.times_us.size()) - row.quiet_rounds;
    if (row.wrong > 0) {
      std::cout << "# WRONG RESULTS: " << row.side.name() << ", " << say_size(row.cell.bytes) << ": " << row.wrong
                << " elements\n";
    }
  }
  return (wrong == 0 ? "# every checked result is right\n" : "") +
         (loud == 0 ? std::string("# the machine was quiet before every round\n")
                    : "# NOT QUIET: " + std::to_string(loud) +
                          " turns were in rounds that began while somebody else used the machine\n");
}

int run_match(const AgainstOptions& options, const std::vector<std::string>& arguments) {
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);  // a signal ends this process, and the guard all others
  const std::vector<int> worlds = worlds_of(options.ranks);
  sizes_of("--sizes", options.sizes);  // refused before anybody is started
  words_of("--dtype", options.dtypes, words_for_dtype());
  Match match(options, sides_of(options), options.peers.empty() ? default_peers() : options.peers);
  std::cout << "# horo " << kVersion << " on " << cpu_model() << ", " << usable_cores() << " cores, "
            << kernel_release() << "; load average at the start " << fixed(load_average(), 2)
            << "\n# ratio: median (least..most) of rounds, each the best peer's time over ours\n";
  for (const int ranks : worlds) match.play(ranks);
  std::cout << say_outcome(match.rows()) << std::flush;
  const AgainstReport report{arguments, match.versions(), match.rows()};
  if (!options.json_file.empty()) write_against_json(options.json_file, report);
  if (!options.csv_file.empty()) write_against_csv(options.csv_file, report);
  return std::any_of(report.rows.begin(), report.rows.end(), [](const Row& row) { return row.wrong > 0; }) ? 1 : 0;
}

}  // namespace

int bench_against(const AgainstOptions& options, const std::vector<std::string>& arguments) {
  const auto guarded = [&](int) {
    try {
      return run_match(options, arguments);
    } catch (const std::invalid_argument& error) {
      std::cerr << "horo: " << error.what() << "\n";
      return 2;
    } catch (const std::exception& error) {
      std::cerr << "horo: " << error.what() << "\n";
      return 1;
    }
  };
  return run_guarded("horo bench --against", guarded);
}

}  // namespace horo::tools
