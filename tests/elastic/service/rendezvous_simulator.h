// The simulator of elastic jobs (tests/elastic/simulator.h) with the real RendezvousCore and several hosts: agents that
// end, hosts that are silent, and a rendezvous that ends at any write of its record and starts again.
#pragma once

#include <cstdint>

#include "tests/elastic/simulator.h"

namespace horo::sim {

// What a rendezvous that is started again has forgotten, to show that the simulator finds it.
enum class Forgets {
  kNothing,
  kSettle,     // the last one
  kView,       // the progress in it
  kDeparture,  // that a member was evicted
  kAgent       // (of the guard) that an agent has ended: it takes its late orders
};

struct HostsReport {
  SimReport run;
  std::uint64_t restarts = 0;  // of the rendezvous
  std::uint64_t crashed_writes = 0;
  std::uint64_t outages = 0;   // of agents
  std::uint64_t silences = 0;  // longer than a lease
  std::uint64_t lost_orders = 0;
  std::uint64_t lost_reports = 0;
  std::uint64_t views_again = 0;  // with another secret

  HostsReport& operator+=(const HostsReport& other);
};

HostsReport simulate_hosts(std::uint64_t seed, Forgets forgets = Forgets::kNothing);

}  // namespace horo::sim
