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

namespace horo::tools {
namespace {

constexpr int kTimeWidth = 11, kLeastSideWidth = 17, kLeastRatioWidth = 24, kGap = 2;

bool is_over_tcp(const Side& side) {
  return side.path == "tcp" || side.library == "gloo";
}

bool is_rival(const Side& ours, const Side& peer) {
  return !peer.is_ours() && (ours.path != "tcp" || is_over_tcp(peer));
}

std::string in_columns(const std::string& text, int width) {
  std::ostringstream out;
  out << std::setw(width) << text;
  return out.str();
}

// A column is as wide as its head.
int width_for(const std::string& head, int least) {
  return std::max(least, static_cast<int>(head.size()) + kGap);
}

int side_width(const Side& side) {
  return width_for(side.name(), kLeastSideWidth);
}

std::string ratio_head(const Side& side) {
  return "best peer/" + side.path;
}

int ratio_width(const Side& side) {
  return width_for(ratio_head(side), kLeastRatioWidth);
}

const Row* row_of(const std::vector<Row>& rows, const Side& side) {
  for (const Row& row : rows) {
    if (row.side.name() == side.name()) return &row;
  }
  return nullptr;
}

std::string say_us(double us) {
  return fixed(us, us < 10 ? 3 : us < 1000 ? 2 : 0);
}

std::string say_ratio(const std::vector<double>& ratios) {
  if (ratios.empty()) return "-";
  const auto [least, most] = std::minmax_element(ratios.begin(), ratios.end());
  return fixed(median(ratios), 2) + " (" + fixed(*least, 2) + ".." + fixed(*most, 2) + ")";
}

std::string first_line(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

nlohmann::json caches() {
  nlohmann::json all = nlohmann::json::array();
  const std::filesystem::path folder = "/sys/devices/system/cpu/cpu0/cache";
  for (int i = 0; std::filesystem::exists(folder / ("index" + std::to_string(i))); ++i) {
    const auto cache = folder / ("index" + std::to_string(i));
    all.push_back("L" + first_line(cache / "level") + " " + first_line(cache / "type") + " " +
                  first_line(cache / "size"));
  }
  return all;
}

nlohmann::json machine_facts(const AgainstReport& report) {
  const std::filesystem::path pages = "/sys/kernel/mm/transparent_hugepage";
  std::string command = "horo";
  for (const std::string& argument : report.arguments) command += " " + argument;
  nlohmann::json versions = {{"horo", kVersion}};
  for (const auto& [name, version] : report.libraries) versions[name] = version;
  return {{"cpu", cpu_model()},
          {"cores", usable_cores()},
          {"caches", caches()},
          {"kernel", kernel_release()},
          {"memory", first_line("/proc/meminfo")},
          {"load", load_average()},
          {"huge_pages", first_line(pages / "enabled")},
          {"huge_pages_shared", first_line(pages / "shmem_enabled")},
          {"versions", versions},
          {"command", command}};
}

nlohmann::json json_of(const Row& row) {
  const auto [least, most] = std::minmax_element(row.times_us.begin(), row.times_us.end());
  nlohmann::json json = {
      {"library", row.side.library},  {"path", row.side.path},         {"collective", row.cell.collective},
      {"ranks", row.cell.ranks},      {"bytes", row.cell.bytes},       {"dtype", row.cell.dtype},
      {"median_us", row.median_us()}, {"rounds", row.times_us.size()}, {"quiet_rounds", row.quiet_rounds},
      {"times_us", row.times_us},     {"spread", *most / *least},      {"wrong", row.wrong}};
  if (const auto fraction = row.limit_fraction()) {
    json["limit_us"] = row.limits_us;
    json["limit_fraction"] = *fraction;
  }
  if (row.memory_mib) json["memory_beyond_buffers_mib"] = *row.memory_mib;
  if (!row.ratios.empty()) {
    json["ratio_to_best_peer"] = median(row.ratios);
    json["ratios"] = row.ratios;
  }
  return json;
}

void close_or_refuse(std::ofstream& file, const std::string& option) {
  file.close();
  if (!file) throw std::invalid_argument(option + ": cannot be written");
}

}  // namespace

double Row::median_us() const {
  return median(times_us);
}

std::optional<double> Row::limit_fraction() const {
  if (limits_us.empty()) return std::nullopt;
  std::vector<double> fractions;
  for (std::size_t round = 0; round < times_us.size(); ++round) {
    fractions.push_back(limits_us[round] / times_us[round]);
  }
  return median(fractions);
}

void judge(std::vector<Row>& rows) {
  for (Row& ours : rows) {
    if (!ours.side.is_ours()) continue;
    for (std::size_t round = 0; round < ours.times_us.size(); ++round) {
      std::optional<double> best;
      for (const Row& peer : rows) {
        if (is_rival(ours.side, peer.side)) best = std::min(best.value_or(1e300), peer.times_us[round]);
      }
      if (best) ours.ratios.push_back(*best / ours.times_us[round]);
    }
  }
}

std::string table_head(const std::vector<Side>& sides) {
  std::string text = in_columns("bytes", kTimeWidth);
  for (const Side& side : sides) text += in_columns(side.name(), side_width(side));
  text += in_columns("limit", kTimeWidth);
  for (const Side& side : sides) {
    if (side.is_ours()) text += in_columns(ratio_head(side), ratio_width(side));
  }
  return text + "\n";
}

std::string table_line(const Cell& cell, const std::vector<Side>& sides, const std::vector<Row>& rows) {
  std::string text = in_columns(say_size(cell.bytes), kTimeWidth);
  std::string limit = "-";
  for (const Side& side : sides) {
    const Row* row = row_of(rows, side);
    text += in_columns(row == nullptr ? "-" : say_us(row->median_us()), side_width(side));
    if (row != nullptr && !row->limits_us.empty() && limit == "-") limit = say_us(median(row->limits_us));
  }
  text += in_columns(limit, kTimeWidth);
  for (const Side& side : sides) {
    if (!side.is_ours()) continue;
    const Row* row = row_of(rows, side);
    text += in_columns(row == nullptr ? "-" : say_ratio(row->ratios), ratio_width(side));
  }
  return text + "\n";
}

void write_against_json(const std::string& name, const AgainstReport& report) {
  nlohmann::json rows = nlohmann::json::array();
  for (const Row& row : report.rows) rows.push_back(json_of(row));
  const nlohmann::json all = {{"machine", machine_facts(report)}, {"rows", rows}};
  std::ofstream file(name);
  file << all.dump(1) << "\n";
  close_or_refuse(file, "--json " + name);
}

void write_against_csv(const std::string& name, const AgainstReport& report) {
  std::ofstream file(name);
  file << "library,path,collective,ranks,bytes,dtype,median_us,rounds,limit_fraction,wrong,ratio_to_best_peer\n";
  for (const Row& row : report.rows) {
    const auto fraction = row.limit_fraction();
    file << row.side.library << "," << row.side.path << "," << row.cell.collective << "," << row.cell.ranks << ","
         << row.cell.bytes << "," << row.cell.dtype << "," << row.median_us() << "," << row.times_us.size() << ","
         << (fraction ? fixed(*fraction, 4) : "") << "," << row.wrong << ","
         << (row.ratios.empty() ? "" : fixed(median(row.ratios), 4)) << "\n";
  }
  close_or_refuse(file, "--csv " + name);
}

}  // namespace horo::tools
