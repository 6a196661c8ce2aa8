// The measurements of `horo bench`. Each is run by every rank of a world; rank 0 prints. They measure and check
// results; none of them judges a time.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "horo/session.h"

namespace horo::tools {

struct CollectiveBench {
  CollectiveKind kind = CollectiveKind::kAllReduce;
  std::size_t min_bytes = 8;
  std::size_t max_bytes = 64 << 20;
  std::vector<DType> dtypes;
  Order order = Order::kCanonical;
  int rounds = 0;         // of each size; 0: as many as take about half a second, 5 to 200
  std::string json_file;  // empty: none
  std::string csv_file;
};
// One collective of growing sizes. 1 if any element of any result was wrong, else 0.
int bench_collective(Session& session, const CollectiveBench& bench);

struct AgreeBench {
  int tensors = 1000;
  int steps = 20;
};
// What it costs per step that the ranks agree on many small gradients. Returns 0.
int bench_agree(Session& session, const AgreeBench& bench);

// Bytes that every algorithm of every collective sends against what its schedule says, and our counters against the
// kernel's, also of what leaves each host. By itself, without a session: it has to choose each algorithm. 1 if any
// deviates by more than 0.5 %, else 0.
int bench_wire(Config config, bool with_header);

struct NetBench {
  int rounds = 5;
  std::size_t max_bytes = 16 << 20;
  std::string json_file;
  double pause_s = 0;  // after which a message is measured as well; 0: none
};
// Latency and bandwidth between two ranks, without a session, beside iperf3 where both hosts have it. Returns 0. Throws
// std::invalid_argument: there are not two ranks.
int bench_net(Config config, const NetBench& bench);

struct ChoiceBench {
  std::vector<CollectiveKind> kinds;
  std::vector<std::size_t> sizes;  // bytes of the longer side
  int rounds = 7;
  std::string json_file;  // empty: none; results are added to those of other worlds in it
};
// The automatic choice beside every algorithm that it has, in turns. 1 if the bits of any two differ, else 0.
int bench_choice(const Config& config, const ChoiceBench& bench);

struct SimulateBench {
  std::string machine_file;  // a description, as bench/machines has; empty: none
  std::string check_file;    // results of bench_choice; empty: none
  CollectiveKind kind = CollectiveKind::kAllReduce;
  std::vector<int> ranks;
  std::vector<std::size_t> sizes;
};
// Seconds of every algorithm on machines that are described, beside published and measured ones. Returns 0. Throws
// std::invalid_argument for a file that is none.
int bench_simulate(const SimulateBench& bench);

struct KernelsBench {
  int rounds = 15;
  std::size_t cache_bytes = 64 << 10;  // of each input: nine of them fit into a second-level cache
  std::size_t memory_bytes = 32 << 20;
};
// What the loops of sums reach, by type, number of inputs and instruction set, in this thread and without a world. 1 if
// any result differs from that of the scalar kernels, else 0.
int bench_kernels(const KernelsBench& bench);

}  // namespace horo::tools
