// What a comparison found: a row for each contestant and cell, and what is made of it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/against/worlds.h"

namespace horo::tools {

// What all contestants do in turns.
struct Cell {
  int ranks = 2;
  std::string collective = "all_reduce";
  std::string dtype = "float32";
  std::size_t bytes = 0;
};

struct Row {
  Side side;
  Cell cell;
  std::vector<double> times_us;      // by round
  std::vector<double> limits_us;     // by round; empty: none is defined for the collective
  int quiet_rounds = 0;              // that began when the machine was quiet
  std::int64_t wrong = 0;            // elements of checked results, of all ranks
  std::optional<double> memory_mib;  // ours: resident beyond the buffers, of the rank with most
  std::vector<double> ratios;        // ours: the best peer's time over ours, by round; empty: no peer

  double median_us() const;
  std::optional<double> limit_fraction() const;  // median over rounds: the machine itself is not the same in all
};

// Fills in the ratios of our rows in one cell: over TCP against peers over TCP, else against all.
void judge(std::vector<Row>& rows);

// Lines of the table: all rows of one cell, and what stands above them.
std::string table_head(const std::vector<Side>& sides);
std::string table_line(const Cell& cell, const std::vector<Side>& sides, const std::vector<Row>& rows);

struct AgainstReport {
  std::vector<std::string> arguments;                          // of this program
  std::vector<std::pair<std::string, std::string>> libraries;  // names and versions
  std::vector<Row> rows;
};

// Throw std::invalid_argument where the file cannot be written.
void write_against_json(const std::string& file, const AgainstReport& report);
void write_against_csv(const std::string& file, const AgainstReport& report);

}  // namespace horo::tools
