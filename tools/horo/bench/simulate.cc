// Predicted times of all algorithms (schedule_time.h) on a machine given by its description, and the same beside
// measured times: published ones, or those of `horo bench choice`.
#include <algorithm>
#include <cmath>
#include <fstream>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "ring/group/choose.h"
#include "ring/schedule/schedule_parts.h"
#include "tools/horo/bench/bench.h"
#include "tools/horo/bench/lists.h"
#include "tools/horo/bench/world.h"

namespace horo::tools {
namespace {

using Json = nlohmann::json;

constexpr int kSimulatedWidth = 17;
constexpr double kGiga = 1e9;

Json read_json(const std::string& option, const std::string& path) {
  std::ifstream file(path);
  if (!file) throw std::invalid_argument(option + " " + path + ": cannot be read");
  try {
    return Json::parse(file);
  } catch (const Json::exception& error) {
    throw std::invalid_argument(option + " " + path + ": " + error.what());
  }
}

LinkCost link_of(const Json& json) {
  const double rate = json.value("wire_gb_per_s", 0.0);
  return {1e-6 * json.value("latency_us", 0.0), 1e-6 * json.value("message_us", 0.0), 1e-9 * json.value("byte_ns", 0.0),
          rate > 0 ? 1 / (kGiga * rate) : 0};
}

MachineCost machine_of(const Json& json) {
  MachineCost machine;
  machine.inside = link_of(json.at("inside"));
  machine.between = link_of(json.at("between"));
  const double rate = json.value("sum_gb_per_s", 0.0);
  machine.sum_byte = rate > 0 ? 1 / (kGiga * rate) : 0;
  machine.cores = json.value("cores", 0.0);
  machine.rails = json.value("rails", 0);
  return machine;
}

// The shortest time over segment sizes: segment_bytes, and halves of it down to least_segment_bytes. It is the time of
// an implementation that selects the segment size by the number of segments.
double seconds_on(const Json& described, const Shape& shape, const NamedMaker& maker, std::size_t bytes) {
  const MachineCost machine = machine_of(described);
  const std::size_t most = described.value("segment_bytes", std::size_t{256} << 10);
  const std::size_t least = described.value("least_segment_bytes", most);
  double seconds = HUGE_VAL;
  for (std::size_t segment = most; segment >= std::max<std::size_t>(1, least); segment /= 2) {
    const Load load{bytes, 4, 4, segment, described.value("slots", std::size_t{0})};
    seconds = std::min(seconds, seconds_of(shape, maker.make, load, machine));
  }
  return seconds;
}

Shape shape_on(CollectiveKind kind, int ranks, int ranks_of_host) {
  Shape shape{kind, ranks, 0, {}, {}};
  for (int rank = 0; rank < ranks; ++rank) {
    shape.hosts.push_back(rank / ranks_of_host);
    if (reduces(kind)) shape.contributors.push_back(rank);
  }
  return shape;
}

const NamedMaker& maker_named(CollectiveKind kind, const std::string& name) {
  for (const NamedMaker& maker : all_schedule_makers()) {
    if (maker.kind == kind && maker.name == name) return maker;
  }
  throw std::invalid_argument("no algorithm \"" + name + "\" for " + std::string(name_of(kind)));
}

double median_of_errors(const std::vector<double>& errors) {
  std::vector<double> sizes;
  for (const double error : errors) sizes.push_back(std::abs(error));
  return median(sizes);
}

// ---- A machine given by a description.

void print_points(const Json& described) {
  std::vector<double> errors;
  std::cout << "# published\n"
            << row({"ranks", "bytes", "algorithm", "busbw GB/s", "simulated", "error %"}, kSimulatedWidth);
  for (const Json& point : described.at("points")) {
    const auto ranks = point.at("ranks").get<int>();
    const auto bytes = point.at("bytes").get<std::size_t>();
    const auto name = point.at("algorithm").get<std::string>();
    const Shape shape = shape_on(CollectiveKind::kAllReduce, ranks, described.at("ranks_of_host").get<int>());
    Json there = described;  // a point may override figures of the machine
    there.merge_patch(point.value("machine", Json::object()));
    const double seconds = seconds_on(there, shape, maker_named(shape.kind, name), bytes);
    const double rate = static_cast<double>(bytes) / seconds / kGiga * bus_factor(shape.kind, ranks);
    const double published = point.at("busbw_gb_per_s").get<double>();
    errors.push_back(100 * (rate / published - 1));
    std::cout << row(
        {std::to_string(ranks), size_text(bytes), name, fixed(published, 0), fixed(rate, 0), fixed(errors.back(), 1)},
        kSimulatedWidth);
  }
  for (const Json& miss : described.value("not_simulated", Json::array())) {
    std::cout << "# not simulated: " << miss.get<std::string>() << "\n";
  }
  std::cout << "# median error " << fixed(median_of_errors(errors), 1) << " %\n";
}

void print_scale(const SimulateBench& bench, const Json& described) {
  const int ranks_of_host = described.at("ranks_of_host").get<int>();
  for (const CollectiveKind kind : {bench.kind}) {
    std::cout << "# " << name_of(kind) << ", us; the last column is the best algorithm\n";
    std::vector<std::string> head{"ranks", "bytes"};
    for (const NamedMaker& maker : all_schedule_makers()) {
      if (maker.kind == kind) head.emplace_back(maker.name);
    }
    head.emplace_back("best");
    std::cout << row(head, kSimulatedWidth);
    for (const int ranks : bench.ranks) {
      const Shape shape = shape_on(kind, ranks, ranks_of_host);
      for (const std::size_t bytes : bench.sizes) {
        std::vector<std::string> cells{std::to_string(ranks), size_text(bytes)};
        std::pair<double, std::string> best{HUGE_VAL, ""};
        for (const NamedMaker& maker : all_schedule_makers()) {
          if (maker.kind != kind) continue;
          const double us = 1e6 * seconds_on(described, shape, maker, bytes);
          best = std::min(best, {us, maker.name});
          cells.push_back(fixed(us, 1));
        }
        cells.push_back(best.second);
        std::cout << row(cells, kSimulatedWidth) << std::flush;
      }
    }
  }
}

// ---- Times measured by horo bench choice.

struct Measured {
  int ranks;
  std::size_t bytes;
  std::string algorithm;
  double us;
};

// The cells of `horo bench choice` for all_reduce over TCP, by number of ranks.
std::map<int, std::vector<Measured>> measured_in(const Json& results) {
  std::map<int, std::vector<Measured>> by_ranks;
  for (const Json& cell : results.at("results")) {
    if (cell.at("transport") != "tcp" || cell.at("collective") != "all_reduce") continue;
    const int ranks = cell.at("ranks").get<int>();
    for (const auto& [name, values] : cell.at("times_us").items()) {
      if (name == "automatic") continue;
      auto times = values.get<std::vector<double>>();
      if (name == cell.at("chosen").get<std::string>()) {  // the automatic choice has the same algorithm
        for (const Json& time : cell.at("times_us").at("automatic")) times.push_back(time.get<double>());
      }
      by_ranks[ranks].push_back({ranks, cell.at("bytes").get<std::size_t>(), name, median(times)});
    }
  }
  return by_ranks;
}

double error_of(const Measured& each, const MachineCost& machine) {
  const Shape shape = shape_on(CollectiveKind::kAllReduce, each.ranks, each.ranks);
  const double us = 1e6 * seconds_of(shape, maker_named(shape.kind, each.algorithm).make, {each.bytes}, machine);
  return us / each.us - 1;
}

std::vector<double> errors_of(const std::vector<Measured>& cells, const MachineCost& machine) {
  std::vector<double> errors;
  for (const Measured& each : cells) errors.push_back(error_of(each, machine));
  return errors;
}

// The sum of the absolute logarithms of predicted / measured. Single outliers have little weight.
double loss_of(const std::vector<Measured>& cells, const MachineCost& machine) {
  double loss = 0;
  for (const double error : errors_of(cells, machine)) loss += std::abs(std::log1p(std::max(-0.999, error)));
  return loss;
}

// Coordinate descent: each cost is multiplied or divided by a factor while the loss falls; then the factor shrinks.
MachineCost calibrated(const std::vector<Measured>& cells, MachineCost machine) {
  const std::vector<double*> knobs{&machine.inside.latency,  &machine.inside.message, &machine.inside.byte,
                                   &machine.sum_byte,        &machine.cache_bytes,    &machine.beyond_cache,
                                   &machine.sum_beyond_cache};
  double loss = loss_of(cells, machine);
  for (double step = 2; step > 1.02; step = std::sqrt(step)) {
    for (bool helps = true; helps;) {
      helps = false;
      for (double* knob : knobs) {
        for (const double factor : {step, 1 / step}) {
          const double before = *knob;
          *knob *= factor;
          const double after = loss_of(cells, machine);
          helps = helps || after < loss * 0.9999;
          after < loss ? loss = after : * knob = before;
        }
      }
    }
  }
  return machine;
}

// Every other size calibrates the costs; the sizes between are predicted.
void check_measured(const Json& results) {
  std::vector<double> all;
  for (const auto& [ranks, cells] : measured_in(results)) {
    std::vector<std::size_t> sizes;
    for (const Measured& each : cells) sizes.push_back(each.bytes);
    std::sort(sizes.begin(), sizes.end());
    sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
    std::vector<Measured> known, predicted;
    for (const Measured& each : cells) {
      const auto at = std::lower_bound(sizes.begin(), sizes.end(), each.bytes) - sizes.begin();
      (at % 2 == 0 ? known : predicted).push_back(each);
    }
    MachineCost machine = usual_costs();
    machine.cores = results.at("cores").get<double>();
    machine.cache_bytes = 1 << 20;
    machine.beyond_cache = machine.sum_beyond_cache = 1.5;
    machine = calibrated(known, machine);
    const std::vector<double> errors = errors_of(predicted, machine);
    std::cout << "# " << ranks << " ranks: " << known.size() << " cells set the costs (median error "
              << fixed(100 * median_of_errors(errors_of(known, machine)), 1) << " %), " << predicted.size()
              << " are predicted: median error " << fixed(100 * median_of_errors(errors), 1) << " %\n"
              << row({"bytes", "algorithm", "us", "simulated", "error %"}, kSimulatedWidth);
    for (std::size_t i = 0; i < predicted.size(); ++i) {
      const Measured& each = predicted[i];
      std::cout << row({size_text(each.bytes), each.algorithm, fixed(each.us, 1), fixed(each.us * (1 + errors[i]), 1),
                        fixed(100 * errors[i], 1)},
                       kSimulatedWidth);
    }
    all.insert(all.end(), errors.begin(), errors.end());
  }
  if (all.empty())
    throw std::invalid_argument("--check: expected all_reduces over tcp, as horo bench choice --json has");
  std::cout << "# median error of all predictions: " << fixed(100 * median_of_errors(all), 1) << " %\n";
}

}  // namespace

int bench_simulate(const SimulateBench& bench) {
  if (!bench.check_file.empty()) check_measured(read_json("--check", bench.check_file));
  if (bench.machine_file.empty()) return 0;
  const Json described = read_json("--machine", bench.machine_file);
  try {
    std::cout << "# " << described.at("name").get<std::string>() << "\n";
    for (const Json& input : described.at("inputs")) std::cout << "# input: " << input.get<std::string>() << "\n";
    if (described.contains("points")) print_points(described);
    print_scale(bench, described);
  } catch (const Json::exception& error) {
    throw std::invalid_argument("--machine " + bench.machine_file + ": " + error.what());
  }
  return 0;
}

}  // namespace horo::tools
