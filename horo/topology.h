// Topology: the position of a rank in the world and on its host.
#pragma once

#include <cstdint>

namespace horo {

struct Topology {
  int rank = 0;
  int size = 1;
  int local_rank = 0;  // on the host of this rank
  int local_size = 1;
  int cross_rank = 0;  // among the ranks of all hosts with the same local_rank
  int cross_size = 1;
  std::uint32_t epoch = 0;
  int min_size = 0;            // of an elastic job (Config::min_np); 0: a static job
  bool is_homogeneous = true;  // all hosts have the same number of ranks
};

}  // namespace horo
