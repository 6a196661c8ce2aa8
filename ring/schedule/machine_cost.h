// MachineCost: what messages, bytes and sums cost on a machine; by these figures algorithms are chosen.
#pragma once

namespace horo {

// A way between two ranks. All in seconds.
struct LinkCost {
  double latency = 0;    // of a round, however many messages it has: on the way, and until a core works for it
  double message = 0;    // of a core, at each end
  double byte = 0;       // the same for each byte
  double wire_byte = 0;  // of the wire, in each direction: of a rank's own inside a host, of a rail between hosts
};

struct MachineCost {
  LinkCost inside;      // ranks of one host
  LinkCost between;     // ranks of different hosts
  double sum_byte = 0;  // seconds of a core for each byte that a sum reads
  double cores = 0;     // of a host, shared by its ranks; 0: one each
  int rails = 0;        // wires from a host to others, its ranks take turns on them; 0: one each
  // Of a tensor that is longer than this, what lies beyond costs cores so many times as much: each byte on its way, and
  // each byte that a sum reads.
  double cache_bytes = 0;
  double beyond_cache = 1;
  double sum_beyond_cache = 1;
};

// Loopback and a current core, roughly: where nothing was measured.
MachineCost usual_costs();

}  // namespace horo
