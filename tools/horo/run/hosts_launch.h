// HostsLaunch: what `horo run --hosts` starts on each host of its list.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tools/horo/machine/descriptor.h"
#include "tools/horo/run/host_list.h"
#include "tools/horo/run/run_options.h"

namespace horo::tools {

struct HostsLaunch {
  std::vector<HostSlots> hosts;                    // slots: ranks
  std::vector<std::vector<std::string>> horo_run;  // arguments on each host
  std::vector<std::vector<std::string>> commands;  // that reach `horo host` on each host: ssh's, or this program's own
  std::vector<std::string> variables;              // "NAME=value", for all hosts
  std::string folder;                              // working folder, on all hosts
  Descriptor port;                                 // of rank 0, if it runs here: reserved as in local_world.h
  double start_timeout_s = 30;
  bool is_elastic = false, verbose = false;
};

// Nothing if the options name no host or this one alone. Throws std::invalid_argument as launch_of() does.
std::optional<HostsLaunch> hosts_launch_of(const RunOptions& options);

// Starts `horo run` on each host once all have answered, and forwards their output and the signals of this process.
// Blocks until all have ended. When a host fails, the others have some seconds to end, unless the job is elastic.
// Returns the code of the host that failed first, not counting hosts that lost a rank of another one. No process of the
// job is left after the return, nor after this process or its connections have ended. Throws as launch() does.
int launch_hosts(const HostsLaunch& launch);

void print_hosts_plan(const HostsLaunch& launch);

}  // namespace horo::tools
