#include "tools/horo/bench/elastic_recovery.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "tools/horo/bench/world.h"

namespace horo::tools {
namespace {

constexpr std::size_t kRoundsBefore = 6;  // of each epoch before a kill

// The value that this share of the values does not exceed.
double quantile(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const double place = std::ceil(share * static_cast<double>(values.size()));
  return values[static_cast<std::size_t>(std::max(place, 1.0)) - 1];
}

class Killer {
 public:
  explicit Killer(const ElasticBench& bench) : bench_(bench), random_(bench.seed) {}

  Recoveries run() {
    while (kills_ < bench_.kills) {
      const int resident = bench_.resident_bytes == 0 ? -1 : draw(bench_.ranks);
      ElasticRun job(bench_, ElasticKind::kElastic, 0, resident);
      first_ = 0;
      while (kills_ < bench_.kills && job.alive().size() > 1) {
        const std::vector<int> alive = job.alive();
        kill_one(job, resident < 0 ? alive[static_cast<std::size_t>(draw(static_cast<int>(alive.size())))] : resident);
        ++kills_;
        if (resident >= 0 || !bench_.hosts.empty()) break;
      }
      found_.change_ms.insert(found_.change_ms.end(), job.change_ms().begin(), job.change_ms().end());
    }
    return found_;
  }

 private:
  int draw(int below) { return static_cast<int>(random_() % static_cast<unsigned>(below)); }

  void kill_one(ElasticRun& job, int victim) {
    const std::vector<int> before = job.alive();
    job.read_until([&] {
      return std::all_of(before.begin(), before.end(),
                         [&](int rank) { return prints(job, rank).deliveries.size() >= first_ + kRoundsBefore; });
    });
    const double step_ms = median(steps_ms(prints(job, before.front()).deliveries, first_ + 1));
    const std::uint64_t bit = std::uint64_t{1} << victim;
    const auto wait_us = static_cast<std::int64_t>(2000 * step_ms * static_cast<double>(draw(1000)) / 1000);
    job.read_for(Clock::now() + std::chrono::microseconds(wait_us));
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
    job.read_until([&] { return prints(job, victim).ended != TimePoint(); });
    found_.whole_ms.push_back(ms_of(last - killed));
    found_.step_ms.push_back(step_ms);
    note(job, victim, killed);
  }

  void note(const ElasticRun& job, int victim, TimePoint killed) {
    const TimePoint ended = prints(job, victim).ended;
    TimePoint first_freeze = TimePoint::max();
    Change last;
    for (const int rank : job.alive()) {
      const Change& one = prints(job, rank).change;
      found_.seen_by_ranks_ms.push_back(ms_of(one.frozen_from - killed));
      if (bench_.host_of(rank) != bench_.host_of(victim))
        found_.seen_by_hosts_ms.push_back(found_.seen_by_ranks_ms.back());
      first_freeze = std::min(first_freeze, one.frozen_from);
      last.frozen = std::max(last.frozen, one.frozen);
      last.view = std::max(last.view, one.view);
      last.connected = std::max(last.connected, one.connected);
      last.installed = std::max(last.installed, one.installed);
    }
    found_.seen_by_guard_ms.push_back(ms_of(ended - killed));
    Moments& moments = found_.moments;
    moments.first_freeze.push_back(ms_of(first_freeze - killed));
    moments.frozen.push_back(ms_of(last.frozen - killed));
    moments.ended.push_back(ms_of(ended - killed));
    moments.view.push_back(ms_of(last.view - killed));
    moments.connected.push_back(ms_of(last.connected - killed));
    moments.installed.push_back(ms_of(last.installed - killed));
    moments.delivered.push_back(found_.whole_ms.back());
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

std::string quantile_row(const std::string& name, const std::vector<double>& values) {
  std::vector<std::string> cells = {std::to_string(values.size())};
  for (const double share : {0.5, 0.9, 0.99, 1.0}) cells.push_back(fixed(quantile(values, share), 1));
  return name + std::string(34 - name.size(), ' ') + row(cells, 9);
}

}  // namespace

double ms_of(Duration duration) {
  return std::chrono::duration<double, std::milli>(duration).count();
}

std::vector<double> steps_ms(const std::vector<Delivery>& deliveries, std::size_t first) {
  std::vector<double> steps;
  for (std::size_t i = first + 1; i < deliveries.size(); ++i) {
    if (deliveries[i].members != deliveries[i - 1].members) continue;
    steps.push_back(ms_of(deliveries[i].at - deliveries[i - 1].at));
  }
  return steps;
}

std::vector<double> Recoveries::r_ms() const {
  std::vector<double> r = whole_ms;
  for (std::size_t i = 0; i < r.size(); ++i) r[i] -= step_ms[i];
  return r;
}

// A moment that comes before the one that it is listed after has a phase of 0.
std::vector<std::pair<std::string, std::vector<double>>> Recoveries::phases() const {
  const std::vector<std::pair<std::string, const std::vector<double>*>> ends = {
      {"first rank frozen", &moments.first_freeze}, {"all ranks frozen", &moments.frozen},
      {"end of process seen", &moments.ended},      {"view on all ranks", &moments.view},
      {"all connected", &moments.connected},        {"all installed", &moments.installed},
      {"round delivered", &moments.delivered}};
  std::vector<double> begin(whole_ms.size(), 0);
  std::vector<std::pair<std::string, std::vector<double>>> phases;
  for (const auto& [name, end] : ends) {
    std::vector<double> phase;
    for (std::size_t i = 0; i < begin.size(); ++i) {
      phase.push_back(std::max((*end)[i] - begin[i], 0.0));
      begin[i] = std::max(begin[i], (*end)[i]);
    }
    phases.emplace_back(name, phase);
  }
  return phases;
}

Recoveries measure_recoveries(const ElasticBench& bench) {
  return Killer(bench).run();
}

std::string recovery_report(const Recoveries& found) {
  if (found.whole_ms.empty()) return "";
  std::string text = std::string(34, ' ') + row({"count", "p50", "p90", "p99", "max"}, 9) +
                     quantile_row("R ms", found.r_ms()) + quantile_row("R and the step ms", found.whole_ms) +
                     quantile_row("change of epoch ms", found.change_ms) +
                     quantile_row("step before the kill ms", found.step_ms) +
                     quantile_row("seen by the other ranks ms", found.seen_by_ranks_ms) +
                     quantile_row("seen by horo run ms", found.seen_by_guard_ms);
  if (!found.seen_by_hosts_ms.empty()) text += quantile_row("seen by other hosts' ranks ms", found.seen_by_hosts_ms);
  for (const auto& [name, values] : found.phases()) text += quantile_row("phase to " + name + " ms", values);
  return text;
}

}  // namespace horo::tools
