// The proof of a schedule, before anything moves: all members' parts are played without a byte, each value carried as
// the expression that it stands for.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ring/schedule/schedule.h"

namespace horo {

// What was proven.
struct Proof {
  Order order =
      Order::kCanonical;  // kFast: every contribution counts once, in another order or one of its own per chunk
  std::string sum;        // reductions: how chunk 0 is summed, as "((0 + 1) + 2)"
  int rounds = 0;
};

// Plays the schedules (one per member, by member) and proves that
//   - every message is expected where and when it arrives, in the form in which it was sent, and nothing else is;
//   - nothing is read that was not written, nothing overwritten while it is sent, also where in and out are the same
//     memory (all_reduce, reduce and broadcast);
//   - each output ends with what the shape asks for: every contribution exactly once, once scaled and rounded;
//   - sums are canonical where the schedule says so.
// Throws std::invalid_argument naming schedule, member, round and step.
Proof check_schedule(const Shape& shape, const std::vector<Schedule>& schedules);

// Bytes of a chunk on the wire and in memory.
struct ChunkBytes {
  std::vector<std::size_t> as_it_is;      // by chunk
  std::vector<std::size_t> accumulating;  // of a partial result
};

struct Cost {
  std::vector<std::size_t> sent;        // by member
  std::vector<std::size_t> left_hosts;  // by host: bytes sent to other hosts
  std::vector<std::size_t> messages;    // by member: sent
  std::vector<std::size_t> scratch;     // by member: most bytes of scratch
};

// Of schedules that were proven.
Cost cost_of(const Shape& shape, const std::vector<Schedule>& schedules, const ChunkBytes& bytes);

}  // namespace horo
