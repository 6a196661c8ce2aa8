// Lists of hosts as Horovod writes them: "host:slots,host:slots", and host files with lines "host slots=4".
#pragma once

#include <string>
#include <vector>

namespace horo::tools {

struct HostSlots {
  std::string name;  // as ssh takes it: "node1", "user@node1", "10.0.0.1", an IPv6 address without brackets
  int slots = 1;
  bool is_here = false;
};

// A host that is named twice has the sum of its slots; all names of this host are one. This host is first, the others
// keep their order. Throws std::invalid_argument with `option` and the part that is wrong: the names go to ssh, so they
// have letters, digits and "._-@:" alone, and no leading dash.
std::vector<HostSlots> parse_hosts(const std::string& text, const std::string& option);
std::vector<HostSlots> read_host_file(const std::string& path, const std::string& option);

// The same hosts with the ranks of each as slots: filled in their order, without those that get none. ranks 0: all
// slots. Throws std::invalid_argument if there are more ranks than slots.
std::vector<HostSlots> place_ranks(std::vector<HostSlots> hosts, int ranks, const std::string& option);

}  // namespace horo::tools
