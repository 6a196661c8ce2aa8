// The proof of a schedule without I/O: the schedules of all members are executed with expressions in place of values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ring/schedule/schedule.h"

namespace horo {

// The result of the proof.
struct Proof {
  Order order = Order::kCanonical;  // kFast: another order, or a different order in each chunk
  std::string sum;                  // of reductions: the sum of chunk 0, as "((0 + 1) + 2)"
  int rounds = 0;
};

// Executes the schedules (one per member, by member) and proves that
//   - every message has a matching receive in the same round, with the same chunks and the same form (elements, or
//     partial results), and every receive has a message;
//   - no member reads a chunk that has not been written, or overwrites a chunk while it is sent, also where in and out
//     are the same memory (all_reduce, reduce and broadcast);
//   - each output holds what the shape requires: every contribution exactly once, scaled and rounded once;
//   - sums are canonical where the schedule declares kCanonical.
// Throws std::invalid_argument naming schedule, member, round and step.
Proof check_schedule(const Shape& shape, const std::vector<Schedule>& schedules);

// Bytes of the chunks, by chunk.
struct ChunkBytes {
  std::vector<std::size_t> as_it_is;      // of elements
  std::vector<std::size_t> accumulating;  // of partial results
};

struct Cost {
  std::vector<std::size_t> sent;        // by member
  std::vector<std::size_t> left_hosts;  // by host: bytes sent to other hosts
  std::vector<std::size_t> messages;    // by member: number sent
  std::vector<std::size_t> scratch;     // by member: bytes of scratch
};

// The cost of schedules that check_schedule() has accepted.
Cost cost_of(const Shape& shape, const std::vector<Schedule>& schedules, const ChunkBytes& bytes);

}  // namespace horo
