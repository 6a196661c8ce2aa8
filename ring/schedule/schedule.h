// Schedules are data: they list what each member of a group sends, receives and combines in a collective. A schedule
// can be printed, is proven without I/O (ring/schedule/schedule_check.h), and is run by one loop
// (ring/algorithms/schedule_run.h).
//
// The tensor is cut into chunks. A member has areas that hold chunks: its input, its output, and scratch. In each round
// all members send, then receive, then combine. A message is received in the round in which it is sent.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "horo/base/types.h"

namespace horo {

// Replaces the contributor id of a member that has no value for the reduction.
inline constexpr std::int64_t kAbsent = -1;

// The problem that a schedule solves; equal on all members.
struct Shape {
  CollectiveKind kind = CollectiveKind::kAllReduce;
  int size = 1;
  int root = 0;  // member; of broadcast, reduce, gather and scatter
  // For reductions: the ids of the members in the canonical tree, ascending; kAbsent: the member has no value. Empty:
  // the ids are 0, 1, 2 ...
  std::vector<std::int64_t> contributors;
  std::vector<int> hosts;  // by member: equal numbers share a host; empty: one host
};

// A run of neighbouring chunks in an area.
struct Part {
  int area = 0;
  int first = 0;
  int count = 1;
};

struct Message {
  int peer = 0;  // member
  Part part;
};

// Sets each chunk of `to` to the value of `tree`. The tree is a postfix program for a stack: an area pushes its chunk,
// and kJoin replaces the two topmost values by their sum, the lower one on the left. A tree of one leaf copies (and
// scales, in reductions).
struct Combine {
  static constexpr int kJoin = -1;
  Part to;
  std::vector<int> tree;
};

// Messages between two members match in their order. All sends read their chunks before any chunk of the round is
// written. A combine reads what the round's messages and earlier combines have written.
struct Round {
  std::vector<Message> send;
  std::vector<Message> receive;
  std::vector<Combine> combine;
};

// An area for `chunks` neighbouring chunks: those from `base` on, or (kFloating) those of the run that was written
// last.
struct Scratch {
  static constexpr int kFloating = -1;
  int chunks = 1;
  bool accumulates = false;  // holds partial results, in the accumulator type; else elements of the tensor
  int base = kFloating;
};

// The schedule of one member. all_reduce, broadcast and reduce cut the tensor evenly into any number of chunks. In the
// other kinds a chunk is a member's part, in all_to_all that of a pair: sender * size + receiver.
struct Schedule {
  static constexpr int kIn = 0;
  static constexpr int kOut = 1;
  static constexpr int kFirstScratch = 2;

  std::string name;
  CollectiveKind kind = CollectiveKind::kAllReduce;
  int size = 1;
  int member = 0;
  int chunks = 1;
  Order order = Order::kCanonical;  // of summation; the proof verifies kCanonical
  std::vector<Scratch> scratch;     // by area, from kFirstScratch on
  std::vector<Round> rounds;        // equal in number on all members
};

// Makes the schedule of one member. Pure.
// N: members; S: bytes of the tensor.
using ScheduleMaker = Schedule (*)(const Shape& shape, int member);

// ---- all_reduce

// Every member sends its tensor to every other member: one round, (N-1)S bytes. For tiny tensors.
Schedule one_shot_all_reduce(const Shape& shape, int member);
// Every member sends each chunk to the chunk's owner, which sums it and sends the sum to all: two rounds, 2(N-1)/N*S
// bytes.
Schedule direct_all_reduce(const Shape& shape, int member);
// 2(N-1) rounds between neighbours of a ring; order kFast. Patarasu and Yuan, "Bandwidth optimal all-reduce algorithms
// for clusters of workstations", 2009.
Schedule ring_all_reduce_schedule(const Shape& shape, int member);
// Recursive halving and doubling, adjacent pairs first, so that the sums are canonical. Sizes that are no powers of two
// are cut into binary blocks. Rabenseifner, "Optimization of collective reduction operations", 2004.
Schedule halving_doubling_all_reduce(const Shape& shape, int member);
// Sums travel up the canonical tree and the result travels down: 2 log2 N rounds, whole tensors. For few bytes and many
// members.
Schedule tree_all_reduce(const Shape& shape, int member);
// Sums inside each host first, so that 2(H-1)/H*S bytes leave each of the H hosts, independent of the number of
// members. A host whose contributors are not one subtree of the canonical tree sends a sum for each of its subtrees
// instead.
Schedule hierarchical_all_reduce(const Shape& shape, int member);
// The same with one sum per host in every case. The order is kFast unless each host is a subtree.
Schedule hosts_first_all_reduce(const Shape& shape, int member);

// ---- other kinds

Schedule direct_reduce_scatter(const Shape& shape, int member);
Schedule direct_all_gather(const Shape& shape, int member);
Schedule direct_all_to_all(const Shape& shape, int member);
Schedule direct_gather(const Shape& shape, int member);
Schedule direct_scatter(const Shape& shape, int member);
// log2 N rounds for any N. Bruck et al., "Efficient algorithms for all-to-all communications", 1997; the
// reduce_scatter, its mirror image (order kFast): Traff, "Optimal, non-pipelined reduce-scatter", 2024.
Schedule log_step_all_gather(const Shape& shape, int member);
Schedule log_step_reduce_scatter(const Shape& shape, int member);
// Sums travel up the canonical tree and the root sends each member its part. For operations that need whole tensors.
Schedule tree_reduce_scatter(const Shape& shape, int member);
Schedule log_step_all_to_all(const Shape& shape, int member);
// The broadcast uses a binomial tree, the reduce the canonical tree.
Schedule tree_broadcast(const Shape& shape, int member);
Schedule tree_reduce(const Shape& shape, int member);
// The root scatters chunks and all members gather them: 2(N-1)/N*S bytes leave the root instead of (N-1)S.
Schedule scatter_broadcast(const Shape& shape, int member);

// A maker and the name that its schedules have.
struct NamedMaker {
  const char* name;
  CollectiveKind kind;
  ScheduleMaker make;
};
const std::vector<NamedMaker>& all_schedule_makers();

// One line for each round: "round 0: send in[1] to 1; receive scratch0[0] from 1; out[0] = (in[0] + scratch0[0])".
std::string print(const Schedule& schedule);

}  // namespace horo
