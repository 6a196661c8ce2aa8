// The recoveries of elastic jobs from killed ranks: how long they take, and where the time goes.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tools/horo/bench/bench.h"
#include "tools/horo/bench/elastic_run.h"

namespace horo::tools {

// The last moments of a recovery, in ms from the kill, of each kill.
struct Moments {
  std::vector<double> first_freeze, frozen, ended, view, connected, installed, delivered;
};

struct Recoveries {
  std::vector<double> whole_ms;  // from a kill to the first round without the killed rank on all others
  std::vector<double> step_ms;   // the median step before the kill
  std::vector<double> change_ms;
  std::vector<double> seen_by_ranks_ms;  // from a kill until each of the others freezes
  std::vector<double> seen_by_hosts_ms;  // the same of those of other hosts than the killed rank's
  std::vector<double> seen_by_guard_ms;  // from a kill until horo run sees the end of the process
  Moments moments;

  std::vector<double> r_ms() const;
  // The successive parts of whole_ms, with their names.
  std::vector<std::pair<std::string, std::vector<double>>> phases() const;
};

Recoveries measure_recoveries(const ElasticBench& bench);
std::string recovery_report(const Recoveries& found);  // empty if there are none

// The times between the ends of successive rounds from `first` on that have the same members.
std::vector<double> steps_ms(const std::vector<Delivery>& deliveries, std::size_t first);

double ms_of(Duration duration);

}  // namespace horo::tools
