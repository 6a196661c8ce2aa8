// The same sums by every canonical algorithm, over every transport, with several segment sizes and buffer alignments,
// several times. All results must have one hash for each number of ranks and type.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/proof/round.h"

namespace horo::proof {

struct BitOptions {
  std::vector<int> sizes = {2, 3, 4, 5, 6, 7, 8, 12};
  std::vector<DType> types = {DType::kFloat32, DType::kFloat16, DType::kBFloat16, DType::kFloat64};
  std::vector<test::Wire> wires = {test::Wire::kInProcess, test::Wire::kTcp, test::Wire::kShm};
  std::vector<std::size_t> segments = {500, 4 << 10, 256 << 10};  // bytes
  std::vector<std::size_t> offsets = {0, 1, 4};                   // bytes
  int repetitions = 2;
  std::size_t elements = 3'001;
};

struct BitRow {
  int ranks = 0;
  std::string what;        // "all_reduce by tree"
  bool canonical = false;  // false: included to show that the values distinguish orders
  std::uint64_t runs = 0;
  std::map<DType, std::set<std::string>> hashes;
};

struct BitTable {
  std::vector<BitRow> rows;
  std::vector<std::string> wrong;  // one line for each number of ranks and type with several hashes
};

BitTable bit_table(const BitOptions& options);
std::string print(const BitTable& table, const BitOptions& options);

}  // namespace horo::proof
