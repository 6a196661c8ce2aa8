// LocalWorld: what the ranks of a job on this host need in order to find and to trust each other.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tools/horo/machine/descriptor.h"
#include "tools/horo/run/launcher.h"

namespace horo::tools {

class LocalWorld {
 public:
  using Variables = std::map<std::string, std::string>;

  // Draws a job key or reads the file. Reserves the port where rank 0 will listen, if that is here, as long as this
  // lives. Throws std::invalid_argument or std::system_error.
  explicit LocalWorld(const Launch& launch);

  // What a local rank's environment has beside this process's. The key is in none of them, only its descriptor's
  // number. OMP_NUM_THREADS and PYTHONUNBUFFERED keep the values that they have.
  Variables variables(int local_rank) const;
  // The whole environment, as exec takes it.
  std::vector<std::string> environment(int local_rank) const;
  // Processors of a local rank; empty: all that this process may use.
  const std::vector<int>& cores(int local_rank) const { return cores_[static_cast<std::size_t>(local_rank)]; }
  int key_fd() const { return key_.get(); }

 private:
  const Launch& launch_;
  Descriptor key_;   // a sealed memory file
  Descriptor port_;  // bound, never listening: nobody is given this port, and rank 0 may listen there
  std::string address_;
  std::vector<std::vector<int>> cores_;  // by local rank
};

}  // namespace horo::tools
