#include "bench/against/scores.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iomanip>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>

#include "horo/horo.h"
#include "tools/horo/bench/lists.h"
#include "tools/horo/bench/world.h"
#include "tools/horo/machine/cores.h"
#include "tools/horo/machine/facts.h"

namespace horo::bench {
namespace {

constexpr int kTimeWidth = 11, kLeastNameWidth = 17, kLeastRatioWidth = 24, kGap = 2;

bool is_over_tcp(const Contestant& contestant) {
  return contestant.path == "tcp" || contestant.library == "gloo";
}

bool is_rival(const Contestant& ours, const Contestant& peer) {
  return !peer.is_horo() && (ours.path != "tcp" || is_over_tcp(peer));
}

std::string in_columns(const std::string& text, int width) {
  std::ostringstream out;
  out << std::setw(width) << text;
  return out.str();
}

// At least the width of the head.
int width_for(const std::string& head, int least) {
  return std::max(least, static_cast<int>(head.size()) + kGap);
}

int name_width(const Contestant& contestant) {
  return width_for(contestant.name(), kLeastNameWidth);
}

std::string ratio_head(const Contestant& contestant) {
  return "best peer/" + contestant.path;
}

int ratio_width(const Contestant& contestant) {
  return width_for(ratio_head(contestant), kLeastRatioWidth);
}

const Row* row_of(const std::vector<Row>& rows, const Contestant& contestant) {
  for (const Row& row : rows) {
    if (row.contestant.name() == contestant.name()) return &row;
  }
  return nullptr;
}

std::string us_text(double us) {
  return tools::fixed(us, us < 10 ? 3 : us < 1000 ? 2 : 0);
}

std::string ratio_text(const std::vector<double>& ratios) {
  if (ratios.empty()) return "-";
  const auto [least, most] = std::minmax_element(ratios.begin(), ratios.end());
  return tools::fixed(tools::median(ratios), 2) + " (" + tools::fixed(*least, 2) + ".." + tools::fixed(*most, 2) + ")";
}

nlohmann::json caches() {
  nlohmann::json all = nlohmann::json::array();
  const std::filesystem::path folder = "/sys/devices/system/cpu/cpu0/cache";
  for (int i = 0; std::filesystem::exists(folder / ("index" + std::to_string(i))); ++i) {
    const auto cache = folder / ("index" + std::to_string(i));
    all.push_back("L" + tools::first_line_of(cache / "level") + " " + tools::first_line_of(cache / "type") + " " +
                  tools::first_line_of(cache / "size"));
  }
  return all;
}

nlohmann::json machine_facts(const ComparisonReport& report) {
  const std::filesystem::path pages = "/sys/kernel/mm/transparent_hugepage";
  std::string command = "horo-bench";
  for (const std::string& argument : report.arguments) command += " " + argument;
  nlohmann::json versions = {{"horo", kVersion}};
  for (const auto& [name, version] : report.libraries) versions[name] = version;
  return {{"cpu", tools::cpu_model()},
          {"cores", tools::usable_cores()},
          {"caches", caches()},
          {"kernel", tools::kernel_release()},
          {"memory", tools::first_line_of("/proc/meminfo")},
          {"load", tools::load_average()},
          {"huge_pages", tools::first_line_of(pages / "enabled")},
          {"huge_pages_shared", tools::first_line_of(pages / "shmem_enabled")},
          {"versions", versions},
          {"command", command}};
}

nlohmann::json json_of(const Row& row) {
  const auto [least, most] = std::minmax_element(row.times_us.begin(), row.times_us.end());
  nlohmann::json json = {
      {"library", row.contestant.library}, {"path", row.contestant.path},   {"collective", row.cell.collective},
      {"ranks", row.cell.ranks},           {"bytes", row.cell.bytes},       {"dtype", row.cell.dtype},
      {"median_us", row.median_us()},      {"rounds", row.times_us.size()}, {"quiet_rounds", row.quiet_rounds},
      {"times_us", row.times_us},          {"spread", *most / *least},      {"wrong", row.wrong}};
  if (const auto fraction = row.limit_fraction()) {
    json["limit_us"] = row.limits_us;
    json["limit_fraction"] = *fraction;
  }
  if (row.memory_mib) json["memory_beyond_buffers_mib"] = *row.memory_mib;
  if (!row.ratios.empty()) {
    json["ratio_to_best_peer"] = tools::median(row.ratios);
    json["ratios"] = row.ratios;
  }
  return json;
}

void close_file(std::ofstream& file, const std::string& option) {
  file.close();
  if (!file) throw std::invalid_argument(option + ": cannot be written");
}

}  // namespace

double Row::median_us() const {
  return tools::median(times_us);
}

std::optional<double> Row::limit_fraction() const {
  if (limits_us.empty()) return std::nullopt;
  std::vector<double> fractions;
  for (std::size_t round = 0; round < times_us.size(); ++round) {
    fractions.push_back(limits_us[round] / times_us[round]);
  }
  return tools::median(fractions);
}

void add_ratios(std::vector<Row>& rows) {
  for (Row& ours : rows) {
    if (!ours.contestant.is_horo()) continue;
    for (std::size_t round = 0; round < ours.times_us.size(); ++round) {
      std::optional<double> best;
      for (const Row& peer : rows) {
        if (is_rival(ours.contestant, peer.contestant)) best = std::min(best.value_or(1e300), peer.times_us[round]);
      }
      if (best) ours.ratios.push_back(*best / ours.times_us[round]);
    }
  }
}

std::string table_head(const std::vector<Contestant>& contestants) {
  std::string text = in_columns("bytes", kTimeWidth);
  for (const Contestant& contestant : contestants) text += in_columns(contestant.name(), name_width(contestant));
  text += in_columns("limit", kTimeWidth);
  for (const Contestant& contestant : contestants) {
    if (contestant.is_horo()) text += in_columns(ratio_head(contestant), ratio_width(contestant));
  }
  return text + "\n";
}

std::string table_line(const Cell& cell, const std::vector<Contestant>& contestants, const std::vector<Row>& rows) {
  std::string text = in_columns(tools::size_text(cell.bytes), kTimeWidth);
  std::string limit = "-";
  for (const Contestant& contestant : contestants) {
    const Row* row = row_of(rows, contestant);
    text += in_columns(row == nullptr ? "-" : us_text(row->median_us()), name_width(contestant));
    if (row != nullptr && !row->limits_us.empty() && limit == "-") limit = us_text(tools::median(row->limits_us));
  }
  text += in_columns(limit, kTimeWidth);
  for (const Contestant& contestant : contestants) {
    if (!contestant.is_horo()) continue;
    const Row* row = row_of(rows, contestant);
    text += in_columns(row == nullptr ? "-" : ratio_text(row->ratios), ratio_width(contestant));
  }
  return text + "\n";
}

void write_json(const std::string& name, const ComparisonReport& report) {
  nlohmann::json rows = nlohmann::json::array();
  for (const Row& row : report.rows) rows.push_back(json_of(row));
  const nlohmann::json all = {{"machine", machine_facts(report)}, {"rows", rows}};
  std::ofstream file(name);
  file << all.dump(1) << "\n";
  close_file(file, "--json " + name);
}

void write_csv(const std::string& name, const ComparisonReport& report) {
  std::ofstream file(name);
  file << "library,path,collective,ranks,bytes,dtype,median_us,rounds,limit_fraction,wrong,ratio_to_best_peer\n";
  for (const Row& row : report.rows) {
    const auto fraction = row.limit_fraction();
    file << row.contestant.library << "," << row.contestant.path << "," << row.cell.collective << "," << row.cell.ranks
         << "," << row.cell.bytes << "," << row.cell.dtype << "," << row.median_us() << "," << row.times_us.size()
         << "," << (fraction ? tools::fixed(*fraction, 4) : "") << "," << row.wrong << ","
         << (row.ratios.empty() ? "" : tools::fixed(tools::median(row.ratios), 4)) << "\n";
  }
  close_file(file, "--csv " + name);
}

}  // namespace horo::bench
