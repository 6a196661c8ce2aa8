// What the property test plays: a round is a world of ranks in which several teams (process sets) run collectives at
// the same time, each on a channel of its own. Plain data, drawn from a seed, printed in a few lines, and made smaller
// as long as it still fails.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "ring/group.h"
#include "tests/proof/elements.h"
#include "tests/ring/run_ranks.h"

namespace horo::proof {

// One collective, equal on all members but for where their buffers lie.
struct Job {
  CollectiveKind kind = CollectiveKind::kAllReduce;
  std::string algorithm;   // wished for; empty: by the rules
  bool from_file = false;  // the algorithm's schedules come from a file
  std::string codec;       // all_reduce: what travels instead of the values
  bool whole = false;      // of an operation of the user's own: it needs whole tensors
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
  std::uint64_t values = 0;           // their seed
  bool in_place = false;              // where the kind can be
  std::vector<std::size_t> misplace;  // by member: bytes by which buffers miss their alignment
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

// The smallest round found, by `tries` attempts at most, that still fails: fewer teams and jobs, fewer elements, plain
// factors, aligned buffers, one host, memory instead of TCP.
Round shrink(Round round, const std::function<bool(const Round&)>& fails, int tries);

}  // namespace horo::proof
