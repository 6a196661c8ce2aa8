// The results of a comparison: a row for each contestant and cell, the table, and the reports.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/against/worlds.h"

namespace horo::bench {

// One task that all contestants run in turns.
struct Cell {
  int ranks = 2;
  std::string collective = "all_reduce";
  std::string dtype = "float32";
  std::size_t bytes = 0;
};

struct Row {
  Contestant contestant;
  Cell cell;
  std::vector<double> times_us;      // by round
  std::vector<double> limits_us;     // by round; empty: the collective has no limit
  int quiet_rounds = 0;              // rounds that began on a quiet machine
  std::int64_t wrong = 0;            // elements of checked results, summed over ranks
  std::optional<double> memory_mib;  // horo: resident memory without the buffers, mean over ranks
  std::vector<double> ratios;        // horo: best peer's time / this time, by round; empty: no peer

  double median_us() const;
  std::optional<double> limit_fraction() const;  // median over rounds of limit / time
};

// Sets the ratios of horo's rows of one cell. The path tcp is compared with peers over TCP, other paths with all peers.
void add_ratios(std::vector<Row>& rows);

// The head of the table, and the line of one cell.
std::string table_head(const std::vector<Contestant>& contestants);
std::string table_line(const Cell& cell, const std::vector<Contestant>& contestants, const std::vector<Row>& rows);

struct ComparisonReport {
  std::vector<std::string> arguments;                          // of this program, without its name
  std::vector<std::pair<std::string, std::string>> libraries;  // names and versions
  std::vector<Row> rows;
};

// Throw std::invalid_argument if the file cannot be written.
void write_json(const std::string& file, const ComparisonReport& report);
void write_csv(const std::string& file, const ComparisonReport& report);

}  // namespace horo::bench
