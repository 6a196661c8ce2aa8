// How long the survivors of a death need until they have the next results, and what an elastic job costs without one.
#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <random>
#include <stdexcept>

#include "tools/horo/bench/elastic_run.h"
#include "tools/horo/bench/world.h"

namespace horo::tools {
namespace {

constexpr std::size_t kRoundsBefore = 6;       // of each epoch before a kill
constexpr std::size_t kElasticFirstSteps = 5;  // of a job: they send names and make plans

double ms_of(Duration duration) {
  return std::chrono::duration<double, std::milli>(duration).count();
}

// The value that this share of the values does not exceed.
double quantile(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const double place = std::ceil(share * static_cast<double>(values.size()));
  return values[static_cast<std::size_t>(std::max(place, 1.0)) - 1];
}

// The times between the ends of successive rounds from `first` on that have the same members.
std::vector<double> steps_ms(const std::vector<Delivery>& deliveries, std::size_t first) {
  std::vector<double> steps;
  for (std::size_t i = first + 1; i < deliveries.size(); ++i) {
    if (deliveries[i].members != deliveries[i - 1].members) continue;
    steps.push_back(ms_of(deliveries[i].at - deliveries[i - 1].at));
  }
  return steps;
}

struct Recoveries {
  std::vector<double> whole_ms;  // from a kill to the first round without the killed rank on all others
  std::vector<double> step_ms;   // the median step before the kill
  std::vector<double> change_ms;
  std::vector<double> r_ms() const {
    std::vector<double> r = whole_ms;
    for (std::size_t i = 0; i < r.size(); ++i) r[i] -= step_ms[i];
    return r;
  }
};

class Killer {
 public:
  explicit Killer(const ElasticBench& bench) : bench_(bench), random_(bench.seed) {}

  Recoveries run() {
    while (kills_ < bench_.kills) {
      ElasticRun job(bench_, ElasticKind::kElastic, 0);
      for (first_ = 0; kills_ < bench_.kills && job.alive().size() > 1; ++kills_) kill_one(job);
      found_.change_ms.insert(found_.change_ms.end(), job.change_ms().begin(), job.change_ms().end());
    }
    return found_;
  }

 private:
  void kill_one(ElasticRun& job) {
    const std::vector<int> before = job.alive();
    job.read_until([&] {
      return std::all_of(before.begin(), before.end(),
                         [&](int rank) { return prints(job, rank).deliveries.size() >= first_ + kRoundsBefore; });
    });
    const double step_ms = median(steps_ms(prints(job, before.front()).deliveries, first_ + 1));
    const int victim = before[random_() % before.size()];
    const std::uint64_t bit = std::uint64_t{1} << victim;
    const auto wait_us = static_cast<std::int64_t>(2000 * step_ms * static_cast<double>(random_() % 1000) / 1000);
    const TimePoint moment = Clock::now() + std::chrono::microseconds(wait_us);
    job.read_for(moment);
    const TimePoint killed = job.kill(victim);
    TimePoint last = killed;
    for (const int rank : job.alive()) {
      const auto has_gone_on = [&](const Delivery& one) { return (one.members & bit) == 0; };
      const auto& deliveries = prints(job, rank).deliveries;
      job.read_until([&] { return !deliveries.empty() && has_gone_on(deliveries.back()); });
      const auto first = std::find_if(deliveries.begin(), deliveries.end(), has_gone_on);
      last = std::max(last, first->at);
      first_ = static_cast<std::size_t>(first - deliveries.begin());
    }
    found_.whole_ms.push_back(ms_of(last - killed));
    found_.step_ms.push_back(step_ms);
  }

  static const RankPrints& prints(const ElasticRun& job, int rank) {
    return job.ranks()[static_cast<std::size_t>(rank)];
  }

  const ElasticBench& bench_;
  std::minstd_rand random_;
  Recoveries found_;
  int kills_ = 0;
  std::size_t first_ = 0;  // the first round of the present epoch
};

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

std::string quantile_row(const std::string& name, const std::vector<double>& values) {
  std::vector<std::string> cells = {std::to_string(values.size())};
  for (const double share : {0.5, 0.9, 0.99, 1.0}) cells.push_back(fixed(quantile(values, share), 1));
  return name + std::string(30 - name.size(), ' ') + row(cells, 9);
}

std::string recovery_report(const Recoveries& found) {
  if (found.whole_ms.empty()) return "";
  return std::string(30, ' ') + row({"count", "p50", "p90", "p99", "max"}, 9) + quantile_row("R ms", found.r_ms()) +
         quantile_row("R and the step ms", found.whole_ms) + quantile_row("change of epoch ms", found.change_ms) +
         quantile_row("step before the kill ms", found.step_ms);
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
  const nlohmann::json report = {
      {"machine", {{"cpu", cpu_model()}, {"kernel", kernel_release()}, {"load_average", load}}},
      {"ranks", bench.ranks},
      {"tensors", bench.tensors},
      {"bytes", bench.bytes},
      {"compute_ms", bench.compute_ms},
      {"transport", bench.transport},
      {"in_buckets", bench.in_buckets},
      {"seed", bench.seed},
      {"r_ms", found.r_ms()},
      {"r_and_step_ms", found.whole_ms},
      {"change_of_epoch_ms", found.change_ms},
      {"step_before_kill_ms", found.step_ms},
      {"static_step_ms", costs[0].step_ms},
      {"static_step_with_barrier_ms", costs[1].step_ms},
      {"elastic_step_ms", costs[2].step_ms},
      {"static_used_ms", costs[0].used_ms},
      {"static_with_barrier_used_ms", costs[1].used_ms},
      {"elastic_used_ms", costs[2].used_ms},
  };
  std::ofstream file(bench.json_file);
  file << report.dump(1) << "\n";
  if (!file) throw std::invalid_argument("--json " + bench.json_file + ": cannot be written");
}

}  // namespace

int bench_elastic(const ElasticBench& bench) {
  const double load = load_average();
  Topology topology;
  topology.size = topology.local_size = bench.ranks;
  std::cout << machine_header(topology) << "# " << bench.tensors << " tensors of " << bench.bytes << " bytes, "
            << bench.compute_ms << " ms of processor time per step\n"
            << "# R: from a kill to the first round without the killed rank on all others, less a step; change of\n"
            << "# epoch: a part of it, as horo run tells it; step: from the end of a round to the end of the next;\n"
            << "# used: processor time of a step and rank; ratios are those to the static job of the same round\n"
            << std::flush;
  const Recoveries found = Killer(bench).run();
  std::cout << recovery_report(found) << std::flush;
  const Costs costs = cost_rounds(bench);
  std::cout << cost_report(costs);
  if (!bench.json_file.empty()) write_json(bench, load, found, costs);
  return 0;
}

}  // namespace horo::tools
