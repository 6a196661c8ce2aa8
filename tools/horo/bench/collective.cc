// A table with the columns of nccl-tests: size is that of the larger of a rank's input and output, count the elements
// of one rank's part, algbw = size / time, busbw = algbw * bus_factor(), which is comparable with the bandwidth of a
// link. Before each operation the input is rewritten and all ranks pass a barrier; neither is part of the time. Every
// result is compared in full. The time of a round is that of its slowest rank.
#include <algorithm>
#include <array>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>

#include "horo/horo.h"
#include "tools/horo/bench/bench.h"
#include "tools/horo/bench/task_data.h"
#include "tools/horo/bench/world.h"

namespace horo::tools {
namespace {

constexpr double kSecondsPerSize = 0.5;
constexpr int kMinRounds = 5;
constexpr int kMaxRounds = 200;
constexpr int kWarmups = 3;
constexpr int kColumnWidth = 12;

struct Timing {
  int rounds = 0;
  double time_us = 0;
  double algbw = 0;  // GB/s
  double busbw = 0;
  std::int64_t wrong = 0;
};

struct SizeResult {
  DType dtype = DType::kFloat32;
  std::size_t bytes = 0;
  std::size_t count = 0;
  Timing apart;                    // in and out differ
  std::optional<Timing> in_place;  // where the collective supports it
};

bool can_be_in_place(CollectiveKind kind) {
  return kind == CollectiveKind::kAllReduce || kind == CollectiveKind::kReduce || kind == CollectiveKind::kBroadcast;
}

class CollectiveMeasure {
 public:
  CollectiveMeasure(Session& session, const CollectiveBench& bench, DType dtype, std::size_t bytes)
      : session_(session),
        bench_(bench),
        task_{std::string(name_of(bench.kind)), std::string(name_of(dtype)), session.topology().rank,
              session.topology().size},
        data_(task_, bytes),
        in_(data_.in_bytes()),
        out_(data_.out_bytes()) {
    spec_.kind = bench.kind;
    spec_.dtype = dtype;
    spec_.order = bench.order;
    spec_.shape = {static_cast<std::int64_t>(in_.size() / size_of(dtype))};
  }

  std::size_t bytes() const { return std::max(in_.size(), out_.size()); }
  // Elements of one rank's part.
  std::size_t count() const { return std::min(in_.size(), out_.size()) / size_of(spec_.dtype) / parts(); }

  Timing run(bool in_place) {
    spec_.name =
        "bench." + task_.collective + "." + task_.dtype + "." + std::to_string(bytes()) + (in_place ? ".in_place" : "");
    const double warm = median(max_over_ranks(session_, timed_rounds(kWarmups, in_place)));
    const double fitting = std::clamp(kSecondsPerSize / warm, 1. * kMinRounds, 1. * kMaxRounds);
    Timing timing{.rounds = bench_.rounds > 0 ? bench_.rounds : static_cast<int>(fitting)};
    wrong_ = 0;
    const double seconds = median(max_over_ranks(session_, timed_rounds(timing.rounds, in_place)));
    timing.time_us = seconds * 1e6;
    timing.algbw = static_cast<double>(bytes()) / seconds / 1e9;
    timing.busbw = timing.algbw * bus_factor(bench_.kind, task_.size);
    timing.wrong = sum_over_ranks(session_, {wrong_}).front();
    return timing;
  }

 private:
  std::size_t parts() const {
    return bench_.kind == CollectiveKind::kAllToAll ? static_cast<std::size_t>(task_.size) : 1;
  }

  std::vector<double> timed_rounds(int rounds, bool in_place) {
    std::vector<double> times;
    std::vector<std::byte>& given = in_place ? out_ : in_;
    for (int i = 0; i < rounds; ++i) {
      data_.begin_turn(++round_);
      data_.rewrite(given.data(), 0);
      Submission submission;
      submission.in = given.data();
      submission.out = out_.data();
      submission.out_bytes = out_.size();
      barrier(session_);
      const TimePoint begin = Clock::now();
      const std::array works = {session_.submit(spec_, submission)};
      session_.wait(works, TimePoint::max());
      times.push_back(seconds_since(begin));
      works.front()->outcome();
      wrong_ += static_cast<std::int64_t>(data_.count_wrong(out_.data(), 0));
    }
    return times;
  }

  Session& session_;
  const CollectiveBench& bench_;
  const BenchTask task_;
  TaskData data_;
  std::vector<std::byte> in_, out_;
  TensorSpec spec_;
  int round_ = 0;
  std::int64_t wrong_ = 0;
};

std::vector<std::string> cells_of(const Timing& timing) {
  return {fixed(timing.time_us, 1), fixed(timing.algbw, 3), fixed(timing.busbw, 3), std::to_string(timing.wrong)};
}

std::string line_of(const SizeResult& result, const CollectiveBench& bench) {
  const bool has_root = bench.kind == CollectiveKind::kBroadcast || bench.kind == CollectiveKind::kReduce ||
                        bench.kind == CollectiveKind::kGather || bench.kind == CollectiveKind::kScatter;
  const bool sums = bench.kind == CollectiveKind::kAllReduce || bench.kind == CollectiveKind::kReduce ||
                    bench.kind == CollectiveKind::kReduceScatter;
  std::vector<std::string> cells{std::to_string(result.bytes), std::to_string(result.count),
                                 std::string(name_of(result.dtype)), sums ? "sum" : "none", has_root ? "0" : "-1"};
  const std::vector<std::string> none(4, "-");
  for (const auto& part : {cells_of(result.apart), result.in_place ? cells_of(*result.in_place) : none}) {
    cells.insert(cells.end(), part.begin(), part.end());
  }
  return row(cells, kColumnWidth);
}

nlohmann::json timing_json(const Timing& timing) {
  return {{"rounds", timing.rounds},
          {"time_us", timing.time_us},
          {"algbw_gb_per_s", timing.algbw},
          {"busbw_gb_per_s", timing.busbw},
          {"wrong", timing.wrong}};
}

void write_json(const Session& session, const CollectiveBench& bench, const std::vector<SizeResult>& results) {
  nlohmann::json rows = nlohmann::json::array();
  for (const SizeResult& result : results) {
    rows.push_back({{"dtype", name_of(result.dtype)},
                    {"bytes", result.bytes},
                    {"count", result.count},
                    {"out_of_place", timing_json(result.apart)}});
    if (result.in_place) rows.back()["in_place"] = timing_json(*result.in_place);
  }
  const nlohmann::json report = {{"horo", kVersion},
                                 {"cpu", cpu_model()},
                                 {"kernel", kernel_release()},
                                 {"collective", name_of(bench.kind)},
                                 {"ranks", session.topology().size},
                                 {"transport", session.config().transport},
                                 {"op", "sum"},
                                 {"order", name_of(bench.order)},
                                 {"results", rows}};
  std::ofstream file(bench.json_file);
  file << report.dump(2) << "\n";
  file.close();
  if (!file) throw std::invalid_argument("--json " + bench.json_file + ": cannot be written");
}

void write_csv(const Session& session, const CollectiveBench& bench, const std::vector<SizeResult>& results) {
  std::ofstream file(bench.csv_file);
  file << "collective,ranks,transport,dtype,bytes,count,in_place,rounds,time_us,algbw_gb_per_s,busbw_gb_per_s,wrong\n";
  const auto line = [&](const SizeResult& result, const Timing& timing, bool in_place) {
    file << name_of(bench.kind) << "," << session.topology().size << "," << session.config().transport << ","
         << name_of(result.dtype) << "," << result.bytes << "," << result.count << "," << in_place << ","
         << timing.rounds << "," << timing.time_us << "," << timing.algbw << "," << timing.busbw << "," << timing.wrong
         << "\n";
  };
  for (const SizeResult& result : results) {
    line(result, result.apart, false);
    if (result.in_place) line(result, *result.in_place, true);
  }
  file.close();
  if (!file) throw std::invalid_argument("--csv " + bench.csv_file + ": cannot be written");
}

SizeResult measure_size(Session& session, const CollectiveBench& bench, DType dtype, std::size_t bytes) {
  CollectiveMeasure measure(session, bench, dtype, bytes);
  SizeResult result;
  result.dtype = dtype;
  result.bytes = measure.bytes();
  result.count = measure.count();
  result.apart = measure.run(false);
  if (can_be_in_place(bench.kind)) result.in_place = measure.run(true);
  return result;
}

std::string head_of(const Session& session, const CollectiveBench& bench) {
  return machine_header(session) + "# " + std::string(name_of(bench.kind)) + ", " + std::string(name_of(bench.order)) +
         " order; new input and a barrier before each round, outside its time\n" +
         row({"", "", "", "", "", "out of", "place", "", "", "in", "place", "", ""}, kColumnWidth) +
         row({"size", "count", "type", "redop", "root", "time us", "algbw GB/s", "busbw GB/s", "#wrong", "time us",
              "algbw GB/s", "busbw GB/s", "#wrong"},
             kColumnWidth);
}

}  // namespace

int bench_collective(Session& session, const CollectiveBench& bench) {
  std::vector<SizeResult> results;
  std::int64_t wrong = 0;
  print(session, head_of(session, bench));
  for (const DType dtype : bench.dtypes) {
    const std::size_t least = std::max(bench.min_bytes, size_of(dtype));
    if (least > bench.max_bytes) {
      throw std::invalid_argument("--max " + std::to_string(bench.max_bytes) +
                                  ": expected at least --min and one element");
    }
    for (std::size_t bytes = least; bytes <= bench.max_bytes; bytes *= 2) {
      const SizeResult& result = results.emplace_back(measure_size(session, bench, dtype, bytes));
      wrong += result.apart.wrong + (result.in_place ? result.in_place->wrong : 0);
      print(session, line_of(result, bench));
    }
  }
  print(session,
        wrong == 0 ? "# every element of every result is right\n" : "# WRONG RESULTS: see the columns #wrong\n");
  const bool writes = session.topology().rank == 0;
  if (writes && !bench.json_file.empty()) write_json(session, bench, results);
  if (writes && !bench.csv_file.empty()) write_csv(session, bench, results);
  return wrong == 0 ? 0 : 1;
}

}  // namespace horo::tools
