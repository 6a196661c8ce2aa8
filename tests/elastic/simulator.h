// A simulator of elastic jobs: the real JobMembership and commit rule with model members, in virtual time, from one
// seed. docs/protocol.md has what it runs, and its faults.
#pragma once

#include <cstdint>
#include <string>

#include "tests/elastic/planted.h"

namespace horo::sim {

struct SimReport {
  std::string violation;    // with the seed; empty: none
  std::uint64_t trace = 0;  // a hash of all events
  // How often the run has had these.
  std::uint64_t events = 0;
  std::uint64_t epochs = 0;  // after the first one
  std::uint64_t deliveries = 0;
  std::uint64_t commits_settled = 0;  // a commit in progress is delivered after a View
  std::uint64_t commits_dropped = 0;  // it runs again
  std::uint64_t late_passes = 0;      // a barrier of an epoch ends when another member has left the epoch
  std::uint64_t installs_cancelled = 0;
  std::uint64_t install_timeouts = 0;
  std::uint64_t repeated_frozen = 0;  // that JobMembership ignores
  std::uint64_t evictions = 0;
  std::uint64_t links_given_up = 0;  // evictions for a link
  std::uint64_t parks = 0;
  std::uint64_t ends_by_park = 0;
  std::uint64_t failed_lanes = 0;
  std::uint64_t settles = 0;        // members that were told to settle before a View
  std::uint64_t fail_alike = 0;     // all members fail in the same way
  std::uint64_t failed_exits = 0;   // that are seen when the member counts as one that has left
  std::uint64_t held_messages = 0;  // by a cut between two members
  std::uint64_t pauses = 0;
  std::uint64_t found_silent = 0;       // members that wait for one that the guard misses
  std::uint64_t started = 0;            // processes that may join
  std::uint64_t joined = 0;             // those that were in a View
  std::uint64_t synced = 0;             // those that have got the state
  std::uint64_t refused = 0;            // those that were told that they cannot join
  std::uint64_t empty_borders = 0;      // all members have come, and none joins any more
  std::uint64_t broken_borders = 0;     // some have come to the border, others have frozen elsewhere
  std::uint64_t states_lost = 0;        // jobs whose members with the state are all lost
  std::uint64_t waits_for_joiners = 0;  // parked jobs that go on when others are ready

  SimReport& operator+=(const SimReport& other);  // the counts
};

// Of a job that may grow, with `joins`.
SimReport simulate(std::uint64_t seed, Planted planted = Planted::kNone, bool joins = false);

}  // namespace horo::sim
