// Schedules are data: what each member of a group sends, receives and combines in a collective, written down before
// anything moves. A schedule can be printed, is proven without I/O (schedule_check.h), and is run by one plain loop
// (schedule_run.h).
//
// The tensor is cut into chunks. A member has areas that hold chunks: its input, its output, and scratch. In each round
// all members send, then receive, then combine; a message is received in the round in which it is sent.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "horo/base/types.h"

namespace horo {

// The id, in place of a contributor's, of a member that has nothing to add to a reduction.
inline constexpr std::int64_t kAbsent = -1;

// The problem: equal on all members.
struct Shape {
  CollectiveKind kind = CollectiveKind::kAllReduce;
  int size = 1;
  int root = 0;  // member: broadcast, reduce, gather, scatter
  // Ids of the members in the canonical tree, ascending; kAbsent: has nothing to add (reductions).
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

// to = the value of `tree` for each chunk of `to`. The tree is in postfix order: an area pushes its chunk, kJoin
// combines the upper two, the lower one on the left. A tree of one leaf copies (and scales, in reductions).
struct Combine {
  static constexpr int kJoin = -1;
  Part to;
  std::vector<int> tree;
};

// Messages between two members are matched in their order. What is sent is read before anything is written; a combine
// sees what the messages and the combines before it have written.
struct Round {
  std::vector<Message> send;
  std::vector<Message> receive;
  std::vector<Combine> combine;
};

// Room for `chunks` neighbouring chunks: those from `base` on, or (kFloating) any run of them, the one that was written
// last.
struct Scratch {
  static constexpr int kFloating = -1;
  int chunks = 1;
  bool accumulates = false;  // holds partial results, in the accumulator type; else values as they came
  int base = kFloating;
};

// One member's part. Chunks: all_reduce, broadcast and reduce cut the tensor evenly; the others have a chunk for each
// member (its part), all_to_all one for each pair: sender * size + receiver.
struct Schedule {
  static constexpr int kIn = 0;
  static constexpr int kOut = 1;
  static constexpr int kFirstScratch = 2;

  std::string name;
  CollectiveKind kind = CollectiveKind::kAllReduce;
  int size = 1;
  int member = 0;
  int chunks = 1;
  Order order = Order::kCanonical;  // of summation; kCanonical is proven, not believed
  std::vector<Scratch> scratch;     // areas from kFirstScratch on
  std::vector<Round> rounds;        // as many on all members
};

// Makes the schedule of one member.
using ScheduleMaker = Schedule (*)(const Shape& shape, int member);

// ---- all_reduce

// Everybody sends everything to everybody: one round, (N-1)S bytes. For tiny tensors.
Schedule one_shot_all_reduce(const Shape& shape, int member);
// Everybody sends each owner its chunk, owners sum, everybody gets the sums: two rounds, 2(N-1)/N*S bytes.
Schedule direct_all_reduce(const Shape& shape, int member);
// 2(N-1) rounds among neighbours; order kFast. Patarasu and Yuan, "Bandwidth optimal all-reduce algorithms for clusters
// of workstations", 2009.
Schedule ring_all_reduce_schedule(const Shape& shape, int member);
// Recursive halving and doubling, adjacent pairs first, so that the sums are canonical; other sizes than powers of two
// by binary blocks. Rabenseifner, "Optimization of collective reduction operations", 2004.
Schedule halving_doubling_all_reduce(const Shape& shape, int member);
// Up the canonical tree and down again: 2 log2 N rounds, whole tensors. For few bytes and many members.
Schedule tree_all_reduce(const Shape& shape, int member);
// Sums inside each host first, so that 2(H-1)/H*S bytes leave each of the H hosts, however many members it has.
// That is so where each host's contributors are a subtree of the canonical tree; else it sends a sum for each subtree.
Schedule hierarchical_all_reduce(const Shape& shape, int member);
// The same for any order: one sum leaves each host, whoever its members are. Order kFast, but for hosts that are
// subtrees.
Schedule hosts_first_all_reduce(const Shape& shape, int member);

// ---- the others

Schedule direct_reduce_scatter(const Shape& shape, int member);
Schedule direct_all_gather(const Shape& shape, int member);
Schedule direct_all_to_all(const Shape& shape, int member);
Schedule direct_gather(const Shape& shape, int member);
Schedule direct_scatter(const Shape& shape, int member);
// log2 N rounds for any N. Bruck et al., "Efficient algorithms for all-to-all communications", 1997; the
// reduce_scatter, its mirror image (order kFast): Traff, "Optimal, non-pipelined reduce-scatter", 2024.
Schedule log_step_all_gather(const Shape& shape, int member);
Schedule log_step_reduce_scatter(const Shape& shape, int member);
// Up the canonical tree, from whose top each member gets its part: for operations that need whole tensors.
Schedule tree_reduce_scatter(const Shape& shape, int member);
Schedule log_step_all_to_all(const Shape& shape, int member);
// Binomial trees; the reduce goes up the canonical one.
Schedule tree_broadcast(const Shape& shape, int member);
Schedule tree_reduce(const Shape& shape, int member);
// Pieces are scattered to all and gathered by all: 2(N-1)/N*S bytes leave the root instead of (N-1)S.
Schedule scatter_broadcast(const Shape& shape, int member);

// Every maker by the name that its schedules carry: what can be chosen, printed and proven.
struct NamedMaker {
  const char* name;
  CollectiveKind kind;
  ScheduleMaker make;
};
const std::vector<NamedMaker>& all_schedule_makers();

// "round 0: send in[1] to 1, receive scratch0[0] from 1; out[0] = (in scratch0)" a line.
std::string print(const Schedule& schedule);

}  // namespace horo
