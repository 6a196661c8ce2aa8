// For each size, the automatic choice and every algorithm of a collective take turns in each round, in one world and
// over the same connections; each has its own group. The time of an operation is that of its slowest rank. The time of
// a turn is the median over its operations, or the mean for tiny ones. The turns of the automatic choice and of the
// algorithm that it selected count as one.
#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <stdexcept>

#include "horo/engine/startup_agreement.h"
#include "horo/horo.h"
#include "ring/group/choose.h"
#include "ring/group/link_costs.h"
#include "ring/links.h"
#include "ring/schedule/schedule_parts.h"
#include "tools/horo/bench/bench.h"
#include "tools/horo/bench/lists.h"
#include "tools/horo/bench/world.h"
#include "tools/horo/machine/cores.h"

namespace horo::tools {
namespace {

using Kind = CollectiveKind;

constexpr std::size_t kMeasuredAloneBytes = 64 << 10;
constexpr double kSecondsOfTurn = 0.02;
constexpr double kFewestOps = 3, kMostOps = 300;
constexpr double kHopeless = 3;  // a first time of this many times the best: not measured further
constexpr double kWithin = 1.10;
constexpr std::chrono::minutes kCellTime{10};
constexpr int kChoiceWidth = 16;

struct Candidate {
  std::string name;
  std::string override;  // HORO_ALGORITHMS; empty: none
  std::unique_ptr<Group> group;
  std::vector<double> times_us{};  // by round
};

struct ChoiceCell {
  Kind kind = Kind::kAllReduce;
  std::size_t bytes = 0;  // of the longer buffer
  std::string chosen, best;
  double best_us = 0, chosen_us = 0;
  std::vector<double> ratios{};  // by round
  std::vector<std::pair<std::string, std::vector<double>>> times_us{};
  std::vector<std::pair<std::string, double>> expected_us{};  // by the cost model

  double ratio() const { return median(ratios); }
  // The automatic choice was the fastest in at least a quarter of the rounds.
  bool is_tie() const {
    std::vector<double> sorted = ratios;
    std::sort(sorted.begin(), sorted.end());
    return sorted[sorted.size() / 4] <= 1.0;
  }
  bool is_good() const { return ratio() <= kWithin || is_tie(); }
};

class ChoiceWorld {
 public:
  ChoiceWorld(const Config& config, const ChoiceBench& bench)
      : config_(config), bench_(bench), links_(find_others(config, 0)) {
    const StartupAgreement compared = compare_settings(links_, config, counters_);
    topology_ = compared.topology;
    hosts_ = compared.hosts;
    costs_ = compared.costs;
    members_.resize(hosts_.size());
    std::iota(members_.begin(), members_.end(), 0);
    plain_ = group("");
  }

  const Topology& topology() const { return topology_; }
  const MachineCost& costs() const { return costs_; }
  bool all_equal() const { return equal_; }

  ChoiceCell measure(Kind kind, std::size_t bytes) {
    std::vector<Candidate> all = candidates(kind);
    Allocation in = plain_->allocate(bytes), out = plain_->allocate(bytes);
    const Collective c = collective(kind, bytes, in, out);
    std::vector<double> tries;
    for (Candidate& each : all) tries.push_back(first_time(each, c, in));
    const double best = *std::min_element(tries.begin(), tries.end());
    for (std::size_t i = all.size(); i-- > 1;) {
      if (tries[i] > kHopeless * best) all.erase(all.begin() + static_cast<std::ptrdiff_t>(i));
    }
    const double ops = std::clamp(kSecondsOfTurn / best, kFewestOps, kMostOps);
    for (int round = 0; round < bench_.rounds; ++round) {
      for (std::size_t i = 0; i < all.size(); ++i) {
        Candidate& each = all[(i + static_cast<std::size_t>(round)) % all.size()];
        each.times_us.push_back(1e6 * turn(each, c, in, static_cast<std::size_t>(ops)));
      }
    }
    ChoiceCell cell = judge(kind, bytes, all, std::string(all.front().group->algorithm(c)));
    const Prices prices{costs_, config_.segment_bytes};
    for (const Priced& each : price(c, shape_of(c, size(), hosts_), bytes, prices)) {
      cell.expected_us.emplace_back(each.maker->name, 1e6 * each.seconds);
    }
    return cell;
  }

 private:
  int size() const { return static_cast<int>(members_.size()); }

  std::unique_ptr<Group> group(const std::string& algorithms) {
    Config config = config_;
    config.algorithms = algorithms;
    return make_transport_group(links_, {members_, 0, hosts_, costs_}, config, counters_);
  }

  // The automatic choice first, then every algorithm with canonical order.
  std::vector<Candidate> candidates(Kind kind) {
    std::vector<Candidate> all;
    all.push_back({"automatic", "", group("")});
    const bool has_hosts = std::set<int>(hosts_.begin(), hosts_.end()).size() > 1;
    Shape shape{kind, size(), 0, {}, hosts_};
    if (reduces(kind)) shape.contributors.assign(members_.begin(), members_.end());
    for (const NamedMaker& maker : all_schedule_makers()) {
      const bool depends_on_hosts = maker.make == hierarchical_all_reduce || maker.make == hosts_first_all_reduce;
      if (maker.kind != kind || (depends_on_hosts && !has_hosts)) continue;
      if (maker.make(shape, 0).order != Order::kCanonical) continue;
      const std::string setting = std::string(name_of(kind)) + "=" + maker.name;
      all.push_back({maker.name, setting, group(setting)});
    }
    return all;
  }

  Collective collective(Kind kind, std::size_t bytes, const Allocation& in, const Allocation& out) const {
    Collective c;
    c.kind = kind;
    const auto n = members_.size();
    const bool is_whole = kind == Kind::kAllReduce || kind == Kind::kReduce || kind == Kind::kBroadcast;
    c.counts.assign(is_whole ? 1 : kind == Kind::kAllToAll ? n * n : n, 0);
    const std::size_t parts = is_whole ? 1 : n;  // of the longer buffer
    for (std::size_t& count : c.counts) count = bytes / sizeof(float) / parts;
    if (reduces(kind)) c.contributors.assign(members_.begin(), members_.end());
    c.in = {.data = in.data.get(), .bytes = in.bytes};
    c.out = kind == Kind::kAllReduce ? c.in : Buffer{.data = out.data.get(), .bytes = out.bytes};
    c.deadline = Clock::now() + kCellTime;
    c.what = "bench choice";
    return c;
  }

  // Writes the input, as a training step would; the same bytes before every operation.
  void rewrite(Allocation& in) const {
    auto* values = reinterpret_cast<float*>(in.data.get());
    const auto mine = static_cast<float>(config_.rank + 1);
    for (std::size_t i = 0; i < in.bytes / sizeof(float); ++i) values[i] = mine / static_cast<float>(1 + (i & 1023));
  }

  void run_once(Candidate& each, Collective& c) {
    c.plan = plan_ += 2;
    each.group->run(c);
  }

  // Returns the seconds of one operation after a first one. Compares its result with that of the others.
  double first_time(Candidate& each, Collective c, Allocation& in) {
    rewrite(in);
    run_once(each, c);
    const bool has_result = c.kind != Kind::kReduce && c.kind != Kind::kGather;
    const std::string_view result(reinterpret_cast<const char*>(c.out.data), has_result ? c.out.bytes : 0);
    const std::size_t hash = std::hash<std::string_view>()(result.substr(0, result_bytes(c)));
    if (each.name == "automatic") expected_ = hash;
    equal_ = over_ranks({expected_ == hash ? 0. : 1.}).front() == 0 && equal_;
    return turn(each, c, in, 1);
  }

  std::size_t result_bytes(const Collective& c) const {
    if (c.kind == Kind::kReduceScatter || c.kind == Kind::kScatter) return c.counts.front() * sizeof(float);
    return c.out.bytes / sizeof(float) / members_.size() * members_.size() * sizeof(float);
  }

  // Uses a new group for each turn: its scratch memory then has other pages in each round, which affects the time.
  double turn(Candidate& each, Collective c, Allocation& in, std::size_t ops) {
    if (each.group->algorithm(c) != "shm") each.group = group(each.override);
    run_once(each, c);
    std::vector<double> times;
    const bool alone = in.bytes >= kMeasuredAloneBytes;
    if (!alone) barrier();
    const TimePoint begin = Clock::now();
    for (std::size_t i = 0; i < ops; ++i) {
      rewrite(in);
      if (alone) barrier();
      const TimePoint start = Clock::now();
      run_once(each, c);
      if (alone) times.push_back(seconds_since(start));
    }
    if (!alone) times.push_back(seconds_since(begin) / static_cast<double>(ops));
    return median(over_ranks(times));
  }

  void barrier() {
    Collective c;
    c.kind = Kind::kBarrier;
    c.plan = plan_ += 2;
    c.deadline = Clock::now() + kCellTime;
    plain_->run(c);
  }

  // The maximum over all ranks.
  std::vector<double> over_ranks(std::vector<double> values) {
    Collective c;
    c.op = ReduceOp::kMax;
    c.dtype = DType::kFloat64;
    c.counts = {values.size()};
    c.contributors.assign(members_.begin(), members_.end());
    c.in = c.out = {reinterpret_cast<std::byte*>(values.data()), values.size() * sizeof(double)};
    c.plan = plan_ += 2;
    c.deadline = Clock::now() + kCellTime;
    plain_->run(c);
    return values;
  }

  static ChoiceCell judge(Kind kind, std::size_t bytes, const std::vector<Candidate>& all, const std::string& chosen) {
    ChoiceCell cell{kind, bytes, chosen, chosen};
    std::vector<double> ours = all.front().times_us;
    for (const Candidate& each : all) {
      cell.times_us.emplace_back(each.name, each.times_us);
      for (std::size_t i = 0; each.name == chosen && i < ours.size(); ++i) ours[i] = (ours[i] + each.times_us[i]) / 2;
    }
    cell.best_us = cell.chosen_us = median(ours);
    std::vector<double> best = ours;
    for (const Candidate& each : all) {
      const bool is_other = &each != &all.front() && each.name != chosen;
      if (!is_other || median(each.times_us) >= cell.best_us) continue;
      best = each.times_us;
      cell.best_us = median(best);
      cell.best = each.name;
    }
    for (std::size_t i = 0; i < ours.size(); ++i) cell.ratios.push_back(ours[i] / best[i]);
    return cell;
  }

  const Config config_;
  const ChoiceBench& bench_;
  Counters counters_;
  Links links_;
  Topology topology_;
  std::vector<int> hosts_, members_;
  MachineCost costs_;
  std::unique_ptr<Group> plain_;
  std::uint64_t plan_ = 0;
  std::size_t expected_ = 0;
  bool equal_ = true;
};

std::string line_of(const ChoiceCell& cell) {
  return row({std::string(name_of(cell.kind)), size_text(cell.bytes), cell.chosen, fixed(cell.chosen_us, 1), cell.best,
              fixed(cell.best_us, 1), fixed(cell.ratio(), 3),
              cell.ratio() <= kWithin ? "ok"
              : cell.is_good()        ? "tie"
                                      : "SLOWER"},
             kChoiceWidth);
}

nlohmann::json row_of(const ChoiceCell& cell, const Config& config) {
  nlohmann::json times = nlohmann::json::object();
  for (const auto& [name, values] : cell.times_us) times[name] = values;
  nlohmann::json expected = nlohmann::json::object();
  for (const auto& [name, us] : cell.expected_us) expected[name] = us;
  return {{"collective", name_of(cell.kind)},
          {"transport", config.transport},
          {"ranks", config.size},
          {"bytes", cell.bytes},
          {"chosen", cell.chosen},
          {"best", cell.best},
          {"ratio", cell.ratio()},
          {"within", cell.is_good()},
          {"times_us", times},
          {"expected_us", expected}};
}

// Adds the cells to those of earlier worlds in the file.
void write_choices(const ChoiceBench& bench, const nlohmann::json& rows, const std::string& machine) {
  nlohmann::json report = {{"horo", kVersion},        {"cpu", cpu_model()},     {"kernel", kernel_release()},
                           {"cores", usable_cores()}, {"rounds", bench.rounds}, {"results", nlohmann::json::array()}};
  if (std::filesystem::exists(bench.json_file)) report = nlohmann::json::parse(std::ifstream(bench.json_file));
  report["worlds"].push_back(machine);
  for (const auto& each : rows) report["results"].push_back(each);
  const auto good = std::count_if(report["results"].begin(), report["results"].end(),
                                  [](const auto& each) { return each["within"].template get<bool>(); });
  report["within_1.10"] = static_cast<double>(good) / static_cast<double>(report["results"].size());
  std::ofstream file(bench.json_file);
  file << report.dump(1) << "\n";
  file.close();
  if (!file) throw std::invalid_argument("--json " + bench.json_file + ": cannot be written");
}

}  // namespace

int bench_choice(const Config& config, const ChoiceBench& bench) {
  ChoiceWorld world(config, bench);
  const bool speaks = config.rank == 0;
  const std::string machine =
      machine_header(world.topology()) + "# HORO_TRANSPORT=" + config.transport + "\n# " + say(world.costs()) + "\n";
  if (speaks) {
    std::cout << machine << "# us of the automatic choice and of the best algorithm, medians of " << bench.rounds
              << " rounds; ratio: median of the rounds' own\n"
              << row({"collective", "bytes", "chosen", "us", "best", "us", "ratio", ""}, kChoiceWidth) << std::flush;
  }
  nlohmann::json rows = nlohmann::json::array();
  std::size_t good = 0;
  for (const Kind kind : bench.kinds) {
    for (const std::size_t bytes : bench.sizes) {
      const ChoiceCell cell = world.measure(kind, bytes);
      good += cell.is_good() ? 1 : 0;
      rows.push_back(row_of(cell, config));
      if (speaks) std::cout << line_of(cell) << std::flush;
    }
  }
  if (!speaks) return 0;
  if (!bench.json_file.empty()) write_choices(bench, rows, machine);
  std::cout << "# within 1.10 of the best, or the fastest in a quarter of the rounds: " << good << " of " << rows.size()
            << " cells\n"
            << (world.all_equal() ? "# every algorithm gave the same bits\n" : "# DIFFERENT BITS\n");
  return world.all_equal() ? 0 : 1;
}

}  // namespace horo::tools
