// Runs programs: ranks are threads with sessions over links in this process.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tests/proof/programs.h"

namespace horo::proof {

struct ProgramResults {
  std::map<std::string, std::uint64_t> ends;  // number of items by outcome: "right", "another shape", ...
  std::chrono::milliseconds longest{0};       // from a submit to its end
  std::vector<std::string> wrong;             // one line for each fault
  void add(const ProgramResults& other);
};

// `stall_limit`: the time after which an item that some ranks have not submitted must fail. Aborts the process with a
// report of the state of each rank if the program takes more than some minutes.
ProgramResults run_program(const Program& program, std::chrono::milliseconds stall_limit);

// Runs `count` programs, drawn from `seed` on, several of them concurrently because they mostly wait.
struct ProgramOptions {
  std::uint64_t seed = 1;
  std::uint64_t count = 50;
  int at_once = 8;
  std::chrono::milliseconds stall_limit{1'500};
};
ProgramResults run_programs(const ProgramOptions& options);

}  // namespace horo::proof
