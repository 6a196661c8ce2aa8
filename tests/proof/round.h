// Rounds of the property test: a world of ranks in which several teams (process sets) run collectives concurrently,
// each on a channel of its own. Plain data, drawn from a seed, that can be printed, and shrunk while it still fails.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "ring/group.h"
#include "tests/proof/elements.h"
#include "tests/ring/run_ranks.h"

namespace horo::proof {

// One collective, equal on all members except for the places of their buffers.
struct Job {
  CollectiveKind kind = CollectiveKind::kAllReduce;
  std::string algorithm;   // empty: chosen by the group
  bool from_file = false;  // the schedules of the algorithm are read from a file
  std::string codec;       // of an all_reduce; empty: none
  bool whole = false;      // the custom operation needs whole tensors
  ReduceOp op = ReduceOp::kSum;
  DType dtype = DType::kFloat32;
  Order order = Order::kCanonical;
  std::vector<std::size_t> counts;
  int root = 0;
  std::vector<std::int64_t> contributors;
  double prescale = 1;
  double postscale = 1;
  double divisor = 1;
  Flavour flavour = Flavour::kSmall;
  std::uint64_t values = 0;           // seed of the values
  bool in_place = false;              // if the kind supports it
  std::vector<std::size_t> misplace;  // by member: misalignment of the buffers in bytes
};

struct Team {
  std::vector<int> ranks;  // ascending
  std::vector<int> hosts;  // by member
  std::uint32_t channel = 0;
  std::vector<Job> jobs;
};

struct Round {
  std::uint64_t seed = 0;
  int size = 1;
  test::Wire wire = test::Wire::kInProcess;
  std::size_t segment_bytes = 256 << 10;
  std::vector<Team> teams;

  std::size_t jobs() const;
};

Round draw_round(std::uint64_t seed);

// All lines end with a newline.
std::string describe(const Round& round);
std::string describe(const Job& job);

// The smallest failing round that at most `tries` attempts find: fewer teams, jobs and elements, factors of 1, aligned
// buffers, one host, in-process transports.
Round shrink(Round round, const std::function<bool(const Round&)>& fails, int tries);

}  // namespace horo::proof
