// The hosts on which the ranks of a comparison run: this host, or network namespaces of it that stand for hosts
// (tools/hosts.py makes them). The coordinator, its files and the barrier between operations are on this host in both
// cases.
#pragma once

#include <string>
#include <vector>

namespace horo::bench {

class HostList {
 public:
  HostList() = default;  // this host alone
  // "NAMESPACE=ADDRESS,NAMESPACE=ADDRESS", and the interface that has the address in each namespace. Throws
  // std::invalid_argument.
  HostList(const std::string& list, std::string interface);

  bool are_namespaces() const { return !hosts_.empty(); }
  std::size_t size() const { return hosts_.size(); }  // 0: this host alone
  const std::string& interface() const { return interface_; }
  const std::string& first_address() const { return hosts_.front().address; }

  // The host of a rank, and its rank and the number of ranks there. Ranks of a host are consecutive; where the division
  // leaves a remainder, the first hosts have one rank more.
  struct Placement {
    std::size_t host = 0;
    int local_rank = 0, local_size = 0;
  };
  Placement place(int rank, int ranks) const;
  // The words before a command that run it on that host; empty: this host.
  std::vector<std::string> prefix(std::size_t host) const;

  // The hosts in the format of mpirun's --host: "10.0.0.1:2,10.0.0.2:2".
  std::string slots(int ranks) const;
  // A shell script that runs a command on a host as ssh would. In it every host has its own host name.
  std::string remote_shell() const;

 private:
  struct Host {
    std::string name_space, address;
  };

  std::vector<Host> hosts_;
  std::string interface_;
};

}  // namespace horo::bench
