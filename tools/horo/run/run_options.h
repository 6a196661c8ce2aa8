// RunOptions: the command line of `horo run` as typed. launch_of() checks it and makes a Launch.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/horo/run/host_list.h"
#include "tools/horo/run/launcher.h"

namespace horo::tools {

struct RunOptions {
  std::optional<int> ranks;
  std::string hosts, host_file;  // Horovod's: "localhost:4,node1:4", or a file with lines "node1 slots=4"
  std::optional<int> ssh_port;
  std::string ssh_identity;
  bool is_part = false;  // horo host gives it
  std::optional<int> nodes, node_rank;
  std::string ranks_per_node;  // "2,1"
  std::string addr, key_file;
  std::vector<std::string> variables;  // "NAME=VALUE", or "NAME" with its value in this process
  std::string cwd, output_dir;
  std::string log_level, timeline, config;    // config: see run_words.h
  double timeout_s = 0, start_timeout_s = 0;  // 0: none, the default
  std::optional<int> min_ranks, max_ranks;    // an elastic job, if there is a least number
  std::optional<int> restarts, restarts_from_checkpoint;
  std::optional<double> evict_after_s, park_timeout_s, grace_s, cool_down_s;
  std::string rendezvous;
  std::string bind_to = "auto";
  bool replace_gloo = false, verbose = false, dry_run = false;
  double progress_s = 0;        // a line on the steps each so many seconds; 0: none
  std::optional<bool> summary;  // none: if stderr is a terminal
  std::vector<std::string> command;
};

// The hosts of the options with their ranks; none if they name no hosts. Throws std::invalid_argument.
std::vector<HostSlots> hosts_of(const RunOptions& options);

// Whether horo run sets the variable for its ranks, so that no option may.
bool is_set_by_run(std::string_view name);

// For ranks of this host. Throws std::invalid_argument with the option, the expected values and the remedy.
Launch launch_of(const RunOptions& options);

}  // namespace horo::tools
