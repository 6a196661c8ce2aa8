// Where the ranks of a comparison run: all on this host, or on hosts that are network namespaces of it, which
// tools/hosts.py makes. The referee, its files and the barrier between operations are of this host in both cases.
#pragma once

#include <string>
#include <vector>

namespace horo::tools {

class ContestHosts {
 public:
  ContestHosts() = default;  // this one alone
  // "NAMESPACE=ADDRESS,NAMESPACE=ADDRESS", and the interface that has the address in each. Throws
  // std::invalid_argument.
  ContestHosts(const std::string& list, std::string interface);

  bool are_namespaces() const { return !hosts_.empty(); }
  std::size_t size() const { return hosts_.size(); }  // 0: this one alone
  const std::string& interface() const { return interface_; }
  const std::string& first_address() const { return hosts_.front().address; }

  // Which rank of how many on which host: ranks of a host follow each other, the first have one more where it does not
  // come out even.
  struct Seat {
    std::size_t host = 0;
    int local_rank = 0, local_size = 0;
  };
  Seat seat(int rank, int ranks) const;
  // What a command begins with that is to run there; empty: it runs here.
  std::vector<std::string> prefix(std::size_t host) const;

  // As mpirun's --host has it: "10.0.0.1:2,10.0.0.2:2".
  std::string slots(int ranks) const;
  // A shell script that does what ssh does with a host and a command. Every host has a name of its own there.
  std::string remote_shell() const;

 private:
  struct Host {
    std::string name_space, address;
  };

  std::vector<Host> hosts_;
  std::string interface_;
};

}  // namespace horo::tools
