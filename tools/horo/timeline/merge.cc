#include "tools/horo/timeline/merge.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iomanip>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>
#include <stdexcept>
#include <tuple>

#include "controller/texts.h"
#include "elastic/texts.h"
#include "horo/base/say.h"
#include "tools/horo/timeline/clock_offset.h"

namespace horo::tools {
namespace {

using Json = nlohmann::json;
using JobId = std::tuple<std::int64_t, std::int64_t, std::int64_t>;  // epoch, process set, number of the release

// The timeline of a rank. Times are microseconds.
struct RankFile {
  std::string path, host;
  std::string clock;  // equal for files of one clock
  int rank = -1, size = 0;
  double unix_minus_monotonic = 0;
  ClockOffset::Found offset;          // of its clock to that of the first file
  std::optional<double> bound = 0.0;  // of the error of the offset; nothing: not known
  std::vector<Json> events;
  std::map<JobId, std::size_t> jobs;  // index of their event
};

struct Summary {
  std::int64_t steps = 0;
  double step = 0, wait = 0;  // sums
  std::vector<double> late;   // for collectives of which this rank was the last one: the time since the last but one
};

std::optional<JobId> job_of(const Json& event) {
  if (event.value("ph", "") != "X" || !event.contains("args") || !event["args"].contains("released")) return {};
  const Json& args = event["args"];
  const auto set = args.value("set", std::int64_t{-1});
  if (set < 0) return {};  // a message between two ranks
  return JobId{args.value("epoch", std::int64_t{0}), set, args.value("number", std::int64_t{0})};
}

// An event per line, between lines of brackets; the last line of a rank that was killed may be cut, and a line with a
// name that is no UTF-8 is no JSON.
RankFile read(const std::string& path) {
  RankFile file;
  file.path = path;
  std::ifstream in(path);
  if (!in) throw std::invalid_argument(say("timeline: cannot read ", path));
  for (std::string line; std::getline(in, line);) {
    if (line.empty() || line[0] != '{') continue;
    if (line.back() == ',') line.pop_back();
    Json event = Json::parse(line, nullptr, false);
    if (!event.is_object()) continue;
    if (event.value("name", "") == "horo_timeline") {
      const Json& args = event["args"];
      file.rank = args.value("rank", -1);
      file.size = args.value("size", 0);
      file.host = args.value("host", "");
      file.clock = args.value("clock", "");
      if (file.clock.empty()) file.clock = "of host " + file.host;  // of an earlier version
      file.unix_minus_monotonic = args.value("unix_minus_monotonic_us", 0.0);
    }
    if (const auto job = job_of(event)) file.jobs[*job] = file.events.size();
    file.events.push_back(std::move(event));
  }
  if (file.rank < 0) throw std::invalid_argument(say("timeline: ", path, " is no timeline of a rank"));
  return file;
}

std::vector<RankFile> read_all(const std::vector<std::string>& paths) {
  std::vector<RankFile> files;
  for (const std::string& path : paths) files.push_back(read(path));
  std::ranges::sort(files, {}, &RankFile::rank);
  for (std::size_t i = 1; i < files.size(); ++i) {
    const RankFile &one = files[i - 1], &other = files[i];
    if (one.rank == other.rank) {
      throw std::invalid_argument(say("timeline: ", one.path, " and ", other.path, " are both of rank ", one.rank));
    }
    if (one.size == other.size) continue;
    throw std::invalid_argument(say("timeline: ", one.path, " is of a world of ", one.size, ", ", other.path, " of ",
                                    other.size, "; expected files of one job"));
  }
  return files;
}

double end_of(const RankFile& file, std::size_t event) {
  return file.events[event]["ts"].get<double>() + file.events[event]["dur"].get<double>();
}

double median(std::vector<double> values) {
  if (values.empty()) return 0.0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// All ranks end a collective at about the same time.
double median_shift(const RankFile& first, const RankFile& other) {
  std::vector<double> differences;
  for (const auto& [job, event] : other.jobs) {
    const auto found = first.jobs.find(job);
    if (found != first.jobs.end()) differences.push_back(end_of(first, found->second) - end_of(other, event));
  }
  if (differences.empty()) return other.unix_minus_monotonic - first.unix_minus_monotonic;
  return median(std::move(differences));
}

using MomentsOf = std::map<JobId, CollectiveTimes>;

void add_moments(const RankFile& file, MomentsOf& moments) {
  for (const auto& [job, event] : file.jobs) {
    const Json& args = file.events[event]["args"];
    if (args.value("tensors", 0) == 0) continue;  // the others did not wait for this rank
    moments[job].add(args["ready"].get<double>(), args["released"].get<double>());
  }
}

// To the clock of the first file.
void shift(Json& event, const ClockOffset::Found& offset) {
  const auto move = [&](Json& time) { time = time.get<double>() - offset.offset_at(time.get<double>()); };
  if (event.contains("ts")) move(event["ts"]);
  if (!job_of(event)) return;
  for (const char* time : {"ready", "released"}) move(event["args"][time]);
}

// Equal names of hosts are no evidence of one clock.
void align(std::vector<RankFile>& files) {
  std::map<std::string, MomentsOf> moments;
  for (const RankFile& file : files) add_moments(file, moments[file.clock]);
  const std::string own = files.front().clock;
  for (RankFile& file : files) {
    if (file.clock == own) continue;
    ClockOffset offset;
    for (const auto& [job, other] : moments[file.clock]) {
      const auto first = moments[own].find(job);
      if (first != moments[own].end()) offset.add(first->second, other);
    }
    const auto found = offset.found();
    file.offset = found.value_or(ClockOffset::Found{-median_shift(files.front(), file)});
    file.bound = found ? std::optional(found->bound) : std::nullopt;
    for (Json& event : file.events) shift(event, file.offset);
  }
}

struct Last {
  std::size_t file;
  double ready, late;  // late: since the last but one
};

std::map<JobId, Last> last_ranks(const std::vector<RankFile>& files) {
  std::map<JobId, Last> last;
  std::map<JobId, std::vector<std::pair<double, std::size_t>>> ready;
  for (std::size_t i = 0; i < files.size(); ++i) {
    for (const auto& [job, event] : files[i].jobs) {
      ready[job].emplace_back(files[i].events[event]["args"]["ready"].get<double>(), i);
    }
  }
  for (auto& [job, times] : ready) {
    if (times.size() < 2) continue;
    std::ranges::sort(times);
    const auto& [time, file] = times.back();
    last[job] = {file, time, time - times[times.size() - 2].first};
  }
  return last;
}

// Adds to each collective which rank was the last, and how long this rank waited for it.
void name_last_ranks(std::vector<RankFile>& files, const std::map<JobId, Last>& last) {
  for (RankFile& file : files) {
    for (const auto& [job, event] : file.jobs) {
      const auto found = last.find(job);
      if (found == last.end()) continue;
      Json& args = file.events[event]["args"];
      args["last_rank"] = files[found->second.file].rank;
      args["waited_us"] = std::max(0.0, found->second.ready - args["ready"].get<double>());
    }
  }
}

std::vector<Summary> summarize(const std::vector<RankFile>& files, const std::map<JobId, Last>& last) {
  std::vector<Summary> all(files.size());
  for (std::size_t i = 0; i < files.size(); ++i) {
    for (const Json& event : files[i].events) {
      if (!event.contains("args") || !event["args"].contains("compute_us")) continue;
      ++all[i].steps;
      all[i].step += event["dur"].get<double>();
      all[i].wait += event["args"]["wait_us"].get<double>();
    }
  }
  for (const auto& [job, one] : last) {
    all[one.file].late.push_back(one.late);
  }
  return all;
}

void write(const std::vector<RankFile>& files, const std::string& path) {
  std::ofstream out(path);
  out << "[";
  const char* before = "\n";
  for (const RankFile& file : files) {
    for (const Json& event : file.events) {
      out << before << event.dump(-1, ' ', false, Json::error_handler_t::replace);
      before = ",\n";
    }
  }
  out << "\n]\n";
  out.close();
  if (!out) throw std::runtime_error(say("timeline: cannot write ", path));
}

double mean(double sum, std::int64_t count) {
  return count > 0 ? sum / static_cast<double>(count) : 0.0;
}

// A line for each clock but the first.
void show_clocks(const std::vector<RankFile>& files, std::ostream& out) {
  std::map<std::string, std::vector<int>> ranks;
  for (const RankFile& file : files) ranks[file.clock].push_back(file.rank);
  for (const RankFile& file : files) {
    if (file.clock == files.front().clock || ranks[file.clock].front() != file.rank) continue;
    out << "  clock of " << ranks_text(ranks[file.clock]) << " (host " << printable(file.host) << "): " << std::fixed
        << std::setprecision(6) << std::abs(file.offset.offset) / 1e6 << " s "
        << (file.offset.offset < 0 ? "behind" : "ahead of") << " that of rank " << files.front().rank;
    if (file.offset.drift != 0) {
      out << std::setprecision(1) << ", and " << (file.offset.drift < 0 ? "loses " : "gains ")
          << std::abs(file.offset.drift) * 1e6 << " us a second";
    }
    if (file.bound) {
      out << ", +- " << std::setprecision(3) << *file.bound / 1e3 << " ms\n";
    } else {
      out << ", by the ends of collectives: no line fits all of them\n";
    }
  }
}

void show(const std::vector<RankFile>& files, const std::vector<Summary>& all, std::ostream& out) {
  out << "  rank  steps  step [ms]   wait  last rank of  by [ms]\n" << std::fixed;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Summary& one = all[i];
    const double wait = one.step > 0 ? 100 * one.wait / one.step : 0.0;
    out << std::setw(6) << files[i].rank << std::setw(7) << one.steps << std::setw(11) << std::setprecision(3)
        << mean(one.step, one.steps) / 1e3 << std::setw(6) << std::setprecision(1) << wait << "%" << std::setw(14)
        << one.late.size() << std::setw(9) << std::setprecision(3) << median(one.late) / 1e3 << "\n";
  }
  show_clocks(files, out);
}

void show_json(const std::vector<RankFile>& files, const std::vector<Summary>& all, std::ostream& out) {
  Json ranks = Json::array();
  for (std::size_t i = 0; i < all.size(); ++i) {
    ranks.push_back({{"rank", files[i].rank},
                     {"host", files[i].host},
                     {"steps", all[i].steps},
                     {"step_us", mean(all[i].step, all[i].steps)},
                     {"wait_us", mean(all[i].wait, all[i].steps)},
                     {"last", all[i].late.size()},
                     {"late_us", median(all[i].late)},
                     {"clock_shift_us", 0 - files[i].offset.offset},
                     {"clock_drift", files[i].offset.drift},
                     {"clock_bound_us", files[i].bound ? Json(*files[i].bound) : Json(nullptr)}});
  }
  out << ranks.dump(2) << "\n";
}

}  // namespace

int merge_timelines(const MergeOptions& options, std::ostream& out) {
  std::vector<RankFile> files = read_all(options.files);
  align(files);
  const std::map<JobId, Last> last = last_ranks(files);
  name_last_ranks(files, last);
  write(files, options.output);
  const std::vector<Summary> all = summarize(files, last);
  options.json ? show_json(files, all, out) : show(files, all, out);
  return 0;
}

}  // namespace horo::tools
