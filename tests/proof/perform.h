// Performs programs: ranks are threads with sessions over links in this process.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tests/proof/programs.h"

namespace horo::proof {

struct Performance {
  std::map<std::string, std::uint64_t> ends;  // how items ended: "right", "another shape", ...
  std::chrono::milliseconds longest{0};       // from a submit to its end
  std::vector<std::string> wrong;             // a line each
  void add(const Performance& other);
};

// `stall_limit`: after which what some ranks miss must fail. Ends the process, saying where each rank stands, if it
// does not come to its end within some minutes.
Performance perform(const Program& program, std::chrono::milliseconds stall_limit);

// `count` programs drawn from `seed` on, several of them at the same time: most of their time they wait.
struct PerformOptions {
  std::uint64_t seed = 1;
  std::uint64_t count = 50;
  int at_once = 8;
  std::chrono::milliseconds stall_limit{1'500};
};
Performance perform_many(const PerformOptions& options);

}  // namespace horo::proof
