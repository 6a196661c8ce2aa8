// `horo bench --against`: horo and other libraries run the same collective in turns, round by round, beside what the
// machine can do at that moment.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "horo/base/types.h"

namespace horo::tools {

struct AgainstOptions {
  std::string against;  // openmpi,openmpi-tcp,mpich,mpich-tcp,gloo
  std::string collective = "all_reduce";
  std::string ranks = "2";
  std::string sizes = "8,1K,64K,1M,16M,64M,256M";
  std::string dtypes = "float32";
  std::string paths = "shm-bucket,shm-user";
  int rounds = 9;
  int wait_s = 20;                  // for a quiet machine, before each round
  std::string hosts;                // NAMESPACE=ADDRESS of each, with commas between them; empty: this one
  std::string interface = "line";   // of those, in each
  std::string json_file, csv_file;  // empty: none
  std::string peers;                // where the drivers are; empty: beside this executable, in the build tree
};

// Prints a table for each world and type. 1 if an element of a result was wrong, else 0. Throws std::invalid_argument
// for what cannot be asked for or is not installed, std::runtime_error where a contestant fails.
int bench_against(const AgainstOptions& options, const std::vector<std::string>& arguments);

// One rank of horo's own Group, of the world that bench_against started. An exit code.
int bench_contestant(const std::string& path);

}  // namespace horo::tools
