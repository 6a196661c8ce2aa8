// RunOptions: the command line of `horo run` as typed. launch_of() checks it and makes a Launch.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tools/horo/run/launcher.h"

namespace horo::tools {

struct RunOptions {
  std::optional<int> ranks;
  std::string hosts;      // Horovod's: "localhost:4"
  std::string host_file;  // of Horovod; refused
  std::optional<int> nodes, node_rank;
  std::string ranks_per_node;  // "2,1"
  std::string addr, key_file;
  std::vector<std::string> variables;  // "NAME=VALUE", or "NAME" with its value in this process
  std::string cwd, output_dir;
  double timeout_s = 0, start_timeout_s = 0;  // 0: none, the default
  std::optional<int> min_ranks, max_ranks;    // an elastic job, if there is a least number
  std::optional<double> evict_after_s, park_timeout_s, grace_s;
  std::string rendezvous;
  std::string bind_to = "auto";
  bool replace_gloo = false, verbose = false, dry_run = false;
  std::vector<std::string> command;
};

// Throws std::invalid_argument with the option, the expected values and the remedy.
Launch launch_of(const RunOptions& options);

}  // namespace horo::tools
