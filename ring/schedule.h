// Schedules are data: what each rank sends, receives and combines, written down before anything moves. They can be
// printed and are proven for every size without I/O; one plain loop (host_group.cc) runs them.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace horo {

// One round of one rank: send a shard, receive a shard, either may be absent (-1).
struct Step {
  int to = -1;  // member that gets shard `send`
  int send = -1;
  int from = -1;  // member that sends shard `recv`
  int recv = -1;
  bool reduce = false;  // fold the arrival into the shard, or keep it
};

// Ring: 2(n-1) rounds; after n-1 of them member r owns the sum of shard (r+1) mod n. Patarasu and Yuan, "Bandwidth
// optimal all-reduce algorithms for clusters of workstations", 2009.
std::vector<Step> ring_schedule(int size, int rank);

// Direct: n-1 rounds that send every owner its piece of its shard, then n-1 that send the finished shard to everyone.
// Round k talks to the member k places on, so that no two members crowd onto a third.
std::vector<Step> direct_schedule(int size, int rank);

// "r2: send 1 to 3, receive 2 from 1, reduce" a line.
std::string print(const std::vector<Step>& steps, int rank);

}  // namespace horo
