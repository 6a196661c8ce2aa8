// LocalWorld: what the ranks of a job on this host need in order to find and to trust each other.
#pragma once

#include <string>
#include <vector>

#include "ring/socket.h"

namespace horo {

class LocalWorld {
 public:
  // Draws a job key and reserves a loopback port as long as this lives. Throws std::system_error.
  explicit LocalWorld(int size);

  // This process's environment with the HORO_ variables of a rank. The key is in none of them, only its descriptor's
  // number. OMP_NUM_THREADS and PYTHONUNBUFFERED keep the values that they have.
  std::vector<std::string> environment(int rank) const;
  int key_fd() const { return key_.get(); }

 private:
  const int size_;
  Fd key_;   // a sealed memory file
  Fd port_;  // bound, never listening: nobody is given this port, and rank 0 may listen there
  std::string address_;
};

// Processors that this process may use.
int usable_cores();

}  // namespace horo
