// MachineCost: the costs of messages, bytes and sums on a machine, from which algorithms are chosen.
#pragma once

namespace horo {

// The link between two ranks. All costs are in seconds.
struct LinkCost {
  double latency = 0;    // of a round, independent of its messages: transfer, and until a core processes it
  double message = 0;    // of each message, on a core at each end
  double byte = 0;       // of each byte, on a core at each end
  double wire_byte = 0;  // of each byte and direction: on the rank's own wire inside a host, on a rail between hosts
};

struct MachineCost {
  LinkCost inside;      // ranks of one host
  LinkCost between;     // ranks of different hosts
  double sum_byte = 0;  // on a core, of each byte that a sum reads
  double cores = 0;     // of a host, shared by its ranks; 0: one for each rank
  int rails = 0;        // wires from a host to others, assigned to its ranks in turn; 0: one for each rank
  // The part of a tensor beyond cache_bytes costs cores more, by a factor for transferred bytes and one for summed
  // bytes.
  double cache_bytes = 0;
  double beyond_cache = 1;
  double sum_beyond_cache = 1;
};

// Approximate costs of a loopback interface and a current core, for when nothing has been measured.
MachineCost usual_costs();

}  // namespace horo
