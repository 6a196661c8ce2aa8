#include "tools/horo/bench/command.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <stdexcept>

#include "tools/horo/bench/lists.h"
#include "tools/horo/run/launcher.h"

namespace horo::tools {
namespace {

constexpr int kMostRanksSimulated = 16'384;

ChoiceBench choice_of(const BenchOptions& options) {
  ChoiceBench bench = options.choice;
  for (const auto& word : words_of("--collectives", options.collectives, words_for_collective())) {
    bench.kinds.push_back(kind_of("--collectives", word));
  }
  bench.sizes = sizes_of("--sizes", options.sizes);
  return bench;
}

SimulateBench simulation_of(const BenchOptions& options) {
  SimulateBench bench = options.simulate;
  bench.ranks = worlds_of(options.ranks.empty() ? "8,64,512,4096,16384" : options.ranks, kMostRanksSimulated);
  bench.sizes = sizes_of("--sizes", options.simulated_sizes);
  bench.kind = kind_of("--collective", options.simulated_collective);
  return bench;
}

std::vector<SimulatedHost> simulated_hosts(const std::string& list) {
  std::vector<SimulatedHost> hosts;
  std::istringstream words(list);
  for (std::string word; std::getline(words, word, ',');) {
    const std::size_t equals = word.find('=');
    if (equals == std::string::npos || equals == 0 || equals + 1 == word.size())
      throw std::invalid_argument("--hosts " + word + ": expected NAMESPACE=ADDRESS for every host");
    hosts.push_back({word.substr(0, equals), word.substr(equals + 1)});
  }
  if (hosts.size() == 1) throw std::invalid_argument("--hosts " + list + ": expected at least two hosts");
  return hosts;
}

ElasticBench elastic_of(const BenchOptions& options) {
  ElasticBench bench = options.elastic;
  bench.transport = options.transport;
  bench.hosts = simulated_hosts(options.hosts);
  if (!bench.hosts.empty() && bench.ranks % static_cast<int>(bench.hosts.size()) != 0) {
    throw std::invalid_argument("--ranks " + std::to_string(bench.ranks) + ": expected a multiple of the " +
                                std::to_string(bench.hosts.size()) + " hosts of --hosts");
  }
  return bench;
}

int bench_as_rank(const std::string& name, const BenchOptions& options) {
  if (name == "wire") return bench_wire(config_from_environment(), !options.no_header);
  if (name == "net") return bench_net(config_from_environment(), options.net);
  Config config = config_from_environment();
  if (!options.transport.empty()) config.transport = options.transport;
  if (name == "elastic") return bench_elastic_rank(config, options.elastic);
  if (name == "choice") return bench_choice(config, choice_of(options));
  Session session(config);
  if (name == "agree") return bench_agree(session, options.agree);
  CollectiveBench bench = options.collective;
  bench.kind = kind_of("bench", name);
  for (const auto& word : words_of("--dtype", options.dtypes, words_for_dtype())) {
    bench.dtypes.push_back(dtype_of("--dtype", word));
  }
  bench.order = options.order == "fast" ? Order::kFast : Order::kCanonical;
  return bench_collective(session, bench);
}

// Runs a world for each transport and number of ranks. All write into one file.
int launch_choices(Launch start, const std::vector<int>& worlds, const BenchOptions& options) {
  choice_of(options);  // checks the options before a process is started
  std::filesystem::remove(options.choice.json_file);
  int result = 0;
  for (const std::string& transport : words_of("--transports", options.transports, {"shm", "tcp"})) {
    for (const int ranks : worlds) {
      start.ranks_by_host = {ranks};
      start.variables = {{"HORO_TRANSPORT", transport}};
      start.binding = CoreBinding::kAuto;  // as horo run
      result = std::max(result, launch(start));
      if (result > 1) return result;  // 1 is a wrong result; more is a failure
    }
  }
  return result;
}

}  // namespace

int run_bench(const std::string& name, const BenchOptions& options, const std::vector<std::string>& arguments) {
  if (name == "simulate") return bench_simulate(simulation_of(options));
  if (name == "kernels") return bench_kernels(options.kernels);
  if (name == "cuda") return bench_cuda(options.cuda);
  if (std::getenv("HORO_RANK") != nullptr) return bench_as_rank(name, options);
  if (name == "elastic") return bench_elastic(elastic_of(options));
  const std::string usual = name == "wire" ? "2..8" : name == "agree" ? "2,4" : name == "choice" ? "2..4" : "2";
  int result = 0;
  Launch start;
  start.title = "horo bench " + name;
  start.prefixed = false;
  start.command = {std::filesystem::read_symlink("/proc/self/exe").string()};
  start.command.insert(start.command.end(), arguments.begin(), arguments.end());
  const std::vector<int> worlds = worlds_of(options.ranks.empty() ? usual : options.ranks);
  if (worlds.size() > 1 && !(options.collective.json_file + options.collective.csv_file).empty()) {
    throw std::invalid_argument("--ranks " + options.ranks + ": --json and --csv take the results of one world");
  }
  if (name == "choice") return launch_choices(start, worlds, options);
  words_of("--dtype", options.dtypes, words_for_dtype());  // before a process is started
  for (const int ranks : worlds) {
    start.ranks_by_host = {ranks};
    result = std::max(result, launch(start));
    if (result > 1) return result;  // 1 is a wrong result; more is a failure
    if (name == "wire" && start.command.back() != "--no-header") start.command.emplace_back("--no-header");
  }
  return result;
}

}  // namespace horo::tools
