// A table as nccl-tests prints it. Every operation gets new input and begins behind a barrier, both outside its time;
// every result is compared in full. A round's time is that of its slowest rank. algbw = bytes / time; busbw = algbw *
// 2(n-1)/n, what each rank has to move whatever the algorithm.
#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "horo/horo.h"
#include "tools/horo/bench.h"
#include "tools/horo/bench_world.h"
#include "tools/horo/pattern.h"

namespace horo {
namespace {

constexpr double kSecondsPerSize = 0.5;
constexpr int kMinRounds = 5;
constexpr int kMaxRounds = 200;
constexpr int kWarmups = 3;

struct Result {
  std::size_t bytes = 0;
  std::size_t count = 0;
  int rounds = 0;
  double time_us = 0;
  double algbw = 0;  // GB/s
  double busbw = 0;
  std::int64_t wrong = 0;
  double wire_over_formula = 0;  // 0 where one rank has nothing to send
};

class Measure {
 public:
  Measure(Session& session, const AllReduceBench& bench, std::size_t bytes)
      : session_(session), pattern_(bench.dtype, session.topology().size), in_(bytes), out_(bytes) {
    spec_.name = "bench.all_reduce." + std::to_string(bytes);
    spec_.dtype = bench.dtype;
    spec_.order = bench.order;
    spec_.shape = {static_cast<std::int64_t>(bytes / size_of(bench.dtype))};
  }

  Result run(int rounds) {
    const double warm = median(max_over_ranks(session_, timed_rounds(kWarmups)));
    if (rounds == 0) rounds = static_cast<int>(std::clamp(kSecondsPerSize / warm, 1. * kMinRounds, 1. * kMaxRounds));
    wrong_ = 0;
    const std::uint64_t sent_before = bytes_sent();
    const std::vector<double> times = timed_rounds(rounds);
    const auto sent = static_cast<std::int64_t>(bytes_sent() - sent_before);
    const std::vector<std::int64_t> sums = sum_over_ranks(session_, {sent, wrong_});
    return result_of(median(max_over_ranks(session_, times)), rounds, sums);
  }

 private:
  std::vector<double> timed_rounds(int rounds) {
    std::vector<double> times;
    for (int i = 0; i < rounds; ++i) {
      ++round_;
      pattern_.fill(in_, session_.topology().rank, round_);
      barrier(session_);
      const TimePoint begin = Clock::now();
      session_.run(spec_, in_.data(), out_.data());
      times.push_back(seconds_since(begin));
      wrong_ += static_cast<std::int64_t>(pattern_.count_wrong(out_, round_));
    }
    return times;
  }

  std::uint64_t bytes_sent() const {
    return session_.counters().collectives(0, CollectiveKind::kAllReduce).traffic.bytes_sent;
  }

  Result result_of(double seconds, int rounds, const std::vector<std::int64_t>& sums) const {
    const auto ranks = static_cast<double>(session_.topology().size);
    const auto bytes = static_cast<double>(in_.size());
    const double formula = 2 * (ranks - 1) * bytes * rounds;  // of all ranks together
    Result result{.bytes = in_.size(), .count = in_.size() / size_of(spec_.dtype), .rounds = rounds};
    result.time_us = seconds * 1e6;
    result.algbw = bytes / seconds / 1e9;
    result.busbw = result.algbw * 2 * (ranks - 1) / ranks;
    result.wrong = sums[1];
    result.wire_over_formula = formula > 0 ? static_cast<double>(sums[0]) / formula : 0;
    return result;
  }

  Session& session_;
  const Pattern pattern_;
  std::vector<std::byte> in_, out_;
  TensorSpec spec_;
  int round_ = 0;
  std::int64_t wrong_ = 0;
};

std::string line_of(const Result& result, const AllReduceBench& bench) {
  return row({std::to_string(result.bytes), std::to_string(result.count), std::string(name_of(bench.dtype)), "sum",
              std::to_string(result.rounds), fixed(result.time_us, 1), fixed(result.algbw, 3), fixed(result.busbw, 3),
              std::to_string(result.wrong), result.wire_over_formula > 0 ? fixed(result.wire_over_formula, 4) : "-"},
             13);
}

void write_json(const Session& session, const AllReduceBench& bench, const std::vector<Result>& results) {
  nlohmann::json rows = nlohmann::json::array();
  for (const Result& result : results) {
    rows.push_back({{"bytes", result.bytes},
                    {"count", result.count},
                    {"rounds", result.rounds},
                    {"time_us", result.time_us},
                    {"algbw_gb_per_s", result.algbw},
                    {"busbw_gb_per_s", result.busbw},
                    {"wrong", result.wrong},
                    {"wire_over_formula", result.wire_over_formula}});
  }
  const nlohmann::json report = {{"horo", kVersion},
                                 {"cpu", cpu_model()},
                                 {"kernel", kernel_release()},
                                 {"ranks", session.topology().size},
                                 {"transport", "tcp"},
                                 {"dtype", name_of(bench.dtype)},
                                 {"op", "sum"},
                                 {"order", name_of(bench.order)},
                                 {"results", rows}};
  std::ofstream file(bench.json_file);
  file << report.dump(2) << "\n";
  file.close();
  if (!file) throw std::invalid_argument("--json " + bench.json_file + ": cannot be written");
}

}  // namespace

int bench_all_reduce(Session& session, const AllReduceBench& bench) {
  if (std::max(bench.min_bytes, size_of(bench.dtype)) > bench.max_bytes) {
    throw std::invalid_argument("--max " + std::to_string(bench.max_bytes) +
                                ": expected at least --min and one element");
  }
  print(session, machine_header(session) + "# all_reduce, " + std::string(name_of(bench.order)) +
                     " order, in and out differ; new input and a barrier before each round, outside its time\n" +
                     row({"bytes", "count", "type", "op", "rounds", "time us", "algbw GB/s", "busbw GB/s", "#wrong",
                          "wire/formula"},
                         13));
  std::vector<Result> results;
  std::int64_t wrong = 0;
  const std::size_t element = size_of(bench.dtype);
  for (std::size_t bytes = std::max(bench.min_bytes, element); bytes <= bench.max_bytes; bytes *= 2) {
    results.push_back(Measure(session, bench, bytes / element * element).run(bench.rounds));
    wrong += results.back().wrong;
    print(session, line_of(results.back(), bench));
  }
  print(session,
        wrong == 0 ? "# every element of every result is right\n" : "# WRONG RESULTS: see the column #wrong\n");
  if (!bench.json_file.empty() && session.topology().rank == 0) write_json(session, bench, results);
  return wrong == 0 ? 0 : 1;
}

}  // namespace horo
