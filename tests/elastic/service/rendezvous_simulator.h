// The simulator of elastic jobs (tests/elastic/simulator.h) with the real RendezvousCore and several hosts: agents and
// hosts that end, hosts that are silent, a rendezvous that ends at any write of its record and starts again, calls that
// are lost, late or doubled, and networks that are cut.
#pragma once

#include <cstdint>

#include "tests/elastic/simulator.h"

namespace horo::sim {

// Faults that are planted to show that the simulator finds them: each breaks a rule of docs/protocol.md.
enum class HostsFault {
  kNone,
  // Of a rendezvous that is started again.
  kForgetsSettle,     // the last one
  kForgetsView,       // the progress in it
  kForgetsDeparture,  // that a member was evicted
  kRepeatsTerm,
  kRepeatsEpoch,
  kEvictsAtOnce,  // without time for the hosts to register
  // Of the rendezvous.
  kTellsBeforeItStores,
  kTakesAStreamForAHost,  // the end of a stream of orders for the end of its host
  kGivesSecretsToEvicted,
  kBlamesBothHosts,    // between which the network is cut
  kEvictsWithoutNeed,  // a silent host for which no member waits
  kCountsPausesOfRendezvous,
  kCountsItsDeafness,  // as silence of the hosts
  // Of a guard or an agent.
  kTakesLateOrders,  // of an agent that has ended
  kPassesOnOldViews,
  kForgetsEnds,         // of members, in its past
  kForgetsFrozen,       // in its past
  kIgnoresALostAnswer,  // goes on with its registration
  kDecidesAlone,        // without contact
  // Of members.
  kNamesNoneOfACut
};

struct HostsReport {
  SimReport run;
  std::uint64_t restarts = 0;  // of the rendezvous
  std::uint64_t crashed_writes = 0;
  std::uint64_t outages = 0;   // of agents
  std::uint64_t silences = 0;  // longer than a lease
  std::uint64_t lost_hosts = 0;
  std::uint64_t locked_out = 0;  // hosts that were told so
  std::uint64_t lost_orders = 0;
  std::uint64_t lost_reports = 0;
  std::uint64_t views_again = 0;  // with another secret
  std::uint64_t lost_calls = 0;
  std::uint64_t lost_answers = 0;   // of calls that were served
  std::uint64_t late_calls = 0;     // that are served when the agent has given them up
  std::uint64_t doubled_calls = 0;  // served twice
  std::uint64_t doubled_orders = 0;
  std::uint64_t lone_parks = 0;  // hosts that end their members for want of contact
  // Partitions that begin while members run: of the network of members, of that of agents, or of both.
  std::uint64_t partitions = 0;
  std::uint64_t data_cuts = 0, control_cuts = 0, whole_cuts = 0;
  std::uint64_t one_way_cuts = 0;
  std::uint64_t lasting_cuts = 0;  // until after the job
  std::uint64_t restarts_in_cuts = 0;
  std::uint64_t epochs_in_cuts = 0;  // that begin for one side of a partition
  std::uint64_t held_calls = 0;      // that a partition delays
  std::uint64_t pauses = 0, job_pauses = 0, core_pauses = 0;
  std::uint64_t rendezvous_cuts = 0;       // from all other hosts
  std::uint64_t long_rendezvous_cuts = 0;  // for longer than members that are parked wait

  HostsReport& operator+=(const HostsReport& other);
};

HostsReport simulate_hosts(std::uint64_t seed, HostsFault fault = HostsFault::kNone);

}  // namespace horo::sim
