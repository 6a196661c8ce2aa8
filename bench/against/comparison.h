// Comparisons: horo and other libraries run the same collective in turns, round by round, beside the limit of the
// machine measured in the same round.
#pragma once

#include <string>
#include <vector>

namespace horo::bench {

struct ComparisonOptions {
  std::string peers;  // openmpi,openmpi-tcp,mpich,mpich-tcp,gloo
  std::string collective = "all_reduce";
  std::string ranks = "2";
  std::string sizes = "8,1K,64K,1M,16M,64M,256M";
  std::string dtypes = "float32";
  std::string paths = "shm-bucket,shm-user";
  int rounds = 9;
  int wait_s = 20;                  // longest wait for a quiet machine before a round
  std::string hosts;                // NAMESPACE=ADDRESS of each host, separated by commas; empty: this host
  std::string interface = "line";   // the network interface in each namespace
  std::string json_file, csv_file;  // empty: none
  std::string drivers;              // folder of the drivers; empty: peers/ beside this executable
};

// Prints a table for each world and type. Returns 1 if an element of a checked result was wrong, 2 for an option that
// is invalid or a peer that is not installed (the reason is on stderr), else 0. `arguments`: this program's, for the
// report.
int compare(const ComparisonOptions& options, const std::vector<std::string>& arguments);

}  // namespace horo::bench
