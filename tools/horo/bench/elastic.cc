// How long the survivors of a death need until they have the next results, and what an elastic job costs without one.
#include <algorithm>
#include <array>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "tools/horo/bench/elastic_recovery.h"
#include "tools/horo/bench/elastic_run.h"
#include "tools/horo/bench/world.h"

namespace horo::tools {
namespace {

constexpr std::size_t kElasticFirstSteps = 5;  // of a job: they send names and make plans

// Of one kind of job: the median step of each round, and the processor time of a step and rank.
struct Turns {
  std::vector<double> step_ms, used_ms;
};

void take_turn(const ElasticBench& bench, ElasticKind kind, Turns& turns) {
  ElasticRun job(bench, kind, bench.steps + static_cast<int>(kElasticFirstSteps));
  job.read_to_end();
  turns.step_ms.push_back(median(steps_ms(job.ranks().front().deliveries, kElasticFirstSteps - 1)));
  double used_ms = 0;
  for (const RankPrints& rank : job.ranks()) {
    used_ms += ms_of(rank.deliveries.back().used - rank.deliveries[kElasticFirstSteps - 1].used);
  }
  turns.used_ms.push_back(used_ms / bench.steps / bench.ranks);
}

using Costs = std::array<Turns, 3>;  // by ElasticKind

Costs cost_rounds(const ElasticBench& bench) {
  Costs costs;
  for (int round = 0; round < bench.rounds; ++round) {
    for (int turn = 0; turn < 3; ++turn) {
      const int kind = (turn + round) % 3;
      take_turn(bench, static_cast<ElasticKind>(kind), costs[static_cast<std::size_t>(kind)]);
    }
  }
  return costs;
}

std::vector<double> ratios(const std::vector<double>& of, const std::vector<double>& to) {
  std::vector<double> ratios;
  for (std::size_t i = 0; i < of.size(); ++i) ratios.push_back(of[i] / to[i]);
  return ratios;
}

std::string cost_report(const Costs& costs) {
  const Turns& bare = costs.front();
  if (bare.step_ms.empty()) return "";
  std::string text = std::string(30, ' ') + row({"step ms", "ratio", "used ms", "ratio"}, 9);
  const std::array names = {"static", "static with a barrier", "elastic"};
  for (std::size_t i = 0; i < costs.size(); ++i) {
    const std::string name = names[i];
    text += name + std::string(30 - name.size(), ' ') +
            row({fixed(median(costs[i].step_ms), 2), fixed(median(ratios(costs[i].step_ms, bare.step_ms)), 3),
                 fixed(median(costs[i].used_ms), 2), fixed(median(ratios(costs[i].used_ms, bare.used_ms)), 3)},
                9);
  }
  return text + "without faults, medians of " + std::to_string(bare.step_ms.size()) + " rounds\n";
}

void write_json(const ElasticBench& bench, double load, const Recoveries& found, const Costs& costs) {
  nlohmann::json report = {
      {"machine", {{"cpu", cpu_model()}, {"kernel", kernel_release()}, {"load_average", load}}},
      {"ranks", bench.ranks},
      {"hosts", std::max<std::size_t>(bench.hosts.size(), 1)},
      {"tensors", bench.tensors},
      {"bytes", bench.bytes},
      {"compute_ms", bench.compute_ms},
      {"resident_bytes", bench.resident_bytes},
      {"transport", bench.transport},
      {"in_buckets", bench.in_buckets},
      {"seed", bench.seed},
      {"r_ms", found.r_ms()},
      {"r_and_step_ms", found.whole_ms},
      {"change_of_epoch_ms", found.change_ms},
      {"step_before_kill_ms", found.step_ms},
      {"seen_by_ranks_ms", found.seen_by_ranks_ms},
      {"seen_by_other_hosts_ms", found.seen_by_hosts_ms},
      {"seen_by_guard_ms", found.seen_by_guard_ms},
      {"static_step_ms", costs[0].step_ms},
      {"static_step_with_barrier_ms", costs[1].step_ms},
      {"elastic_step_ms", costs[2].step_ms},
      {"static_used_ms", costs[0].used_ms},
      {"static_with_barrier_used_ms", costs[1].used_ms},
      {"elastic_used_ms", costs[2].used_ms},
  };
  nlohmann::json& phases = report["phases_ms"] = nlohmann::json::array();  // in their order
  for (const auto& [name, values] : found.phases()) phases.push_back({{"name", name}, {"ms", values}});
  std::ofstream file(bench.json_file);
  file << report.dump(1) << "\n";
  if (!file) throw std::invalid_argument("--json " + bench.json_file + ": cannot be written");
}

}  // namespace

int bench_elastic(const ElasticBench& bench) {
  const double load = load_average();
  Topology topology;
  topology.size = bench.ranks;
  topology.local_size = bench.ranks / static_cast<int>(std::max<std::size_t>(bench.hosts.size(), 1));
  std::cout
      << machine_header(topology) << "# " << bench.tensors << " tensors of " << bench.bytes << " bytes, "
      << bench.compute_ms << " ms of processor time per step\n"
      << "# " << bench.resident_bytes << " bytes resident in the killed rank\n"
      << "# R: from a kill to the first round without the killed rank on all others, less a step; change of\n"
      << "# epoch: a part of it, as horo run tells it; seen: from a kill until a rank freezes, and until horo run\n"
      << "# sees the end of the process; phases: the parts of R and the step; step: from the end of a round to the end "
         "of the next;\n"
      << "# used: processor time of a step and rank; ratios are those to the static job of the same round\n"
      << std::flush;
  const Recoveries found = measure_recoveries(bench);
  std::cout << recovery_report(found) << std::flush;
  const Costs costs = cost_rounds(bench);
  std::cout << cost_report(costs);
  if (!bench.json_file.empty()) write_json(bench, load, found, costs);
  return 0;
}

}  // namespace horo::tools
