// The benchmarks of `horo bench`. Every rank of a world runs them; rank 0 prints. They measure times and check results;
// none has a limit for a time.
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
  int rounds = 0;         // of each size; 0: about half a second, 5 to 200 rounds
  std::string json_file;  // empty: none
  std::string csv_file;
};
// One collective at increasing sizes. Returns 1 if an element of a result was wrong, else 0.
int bench_collective(Session& session, const CollectiveBench& bench);

struct AgreeBench {
  int tensors = 1000;
  int steps = 20;
};
// The cost per step of negotiating many small gradients. Returns 0.
int bench_agree(Session& session, const AgreeBench& bench);

// The bytes that each algorithm of each collective sends, by horo's counters, against its schedule and the kernel's
// counters, also for the bytes that leave each host. It has no session, because it selects each algorithm. Returns 1 if
// a deviation exceeds 0.5 %, else 0.
int bench_wire(Config config, bool with_header);

struct NetBench {
  int rounds = 5;
  std::size_t max_bytes = 16 << 20;
  std::string json_file;
  double pause_s = 0;  // also measures a message after such a pause; 0: no
};
// Latency and bandwidth between two ranks, without a session, beside iperf3 if both hosts have it. Returns 0. Throws
// std::invalid_argument if the number of ranks is not two.
int bench_net(Config config, const NetBench& bench);

struct ChoiceBench {
  std::vector<CollectiveKind> kinds;
  std::vector<std::size_t> sizes;  // bytes of the longer buffer
  int rounds = 7;
  std::string json_file;  // empty: none; the results of several worlds are added to one file
};
// The automatic choice beside every algorithm, in turns. Returns 1 if the bits of two results differ, else 0.
int bench_choice(const Config& config, const ChoiceBench& bench);

struct SimulateBench {
  std::string machine_file;  // a description as in bench/machines; empty: none
  std::string check_file;    // results of bench_choice; empty: none
  CollectiveKind kind = CollectiveKind::kAllReduce;
  std::vector<int> ranks;
  std::vector<std::size_t> sizes;
};
// Predicted times of every algorithm on a described machine, beside published and measured ones. Returns 0. Throws
// std::invalid_argument for an invalid file.
int bench_simulate(const SimulateBench& bench);

struct KernelsBench {
  int rounds = 15;
  std::size_t cache_bytes = 64 << 10;  // of each input; nine inputs fit into a second-level cache
  std::size_t memory_bytes = 32 << 20;
};
// The speed of the reduction kernels by type, number of inputs and instruction set, in the calling thread. Needs no
// world. Returns 1 if a result differs from that of the scalar kernels, else 0.
int bench_kernels(const KernelsBench& bench);

struct CudaBench {
  int device = 0;
  int rounds = 15;
  std::size_t bytes = 256 << 20;       // of each input of a measurement
  std::size_t most_elements = 40'007;  // of a comparison with the CPU
  std::string json_file;               // empty: none
};
// The kernels of a CUDA device: compares their results with reduce_tree(), for all types, operations and numbers of
// inputs, and measures reductions and copies of rows beside plain copies on the device. Needs no world. Returns 1 if a
// result differs, else 0. Throws std::invalid_argument if there is no device or no kernel, and std::runtime_error.
int bench_cuda(const CudaBench& bench);

// A network namespace of this machine, which stands for a host, and its address.
struct SimulatedHost {
  std::string name, address;
};

struct ElasticBench {
  int ranks = 4;
  std::vector<SimulatedHost> hosts;  // the ranks are divided evenly among them; empty: all run on this host
  int kills = 100;
  int tensors = 4;
  std::size_t bytes = 4 << 20;  // of each tensor
  double compute_ms = 20;       // processor time of each rank before each round
  std::string transport;        // empty: HORO_TRANSPORT
  unsigned seed = 1;
  int rounds = 11;                 // of the cost without faults; 0: it is not measured
  int steps = 50;                  // of each turn of a round; of a rank: 0 for no end
  bool in_buckets = false;         // the tensors lie in the buckets of their plans
  bool has_barrier = true;         // of a rank: a barrier ends each round
  std::size_t resident_bytes = 0;  // memory that the killed rank holds
  int resident_rank = -1;          // of a rank: the one that holds it; -1: none
  std::string json_file;           // empty: none

  int host_of(int rank) const { return hosts.empty() ? 0 : rank * static_cast<int>(hosts.size()) / ranks; }
};
// The recovery of elastic jobs from killed ranks, and the cost of elastic jobs without faults. Starts the jobs by horo
// run. Returns 0. Throws std::runtime_error if a job fails.
int bench_elastic(const ElasticBench& bench);
// The program of the ranks.
int bench_elastic_rank(const Config& config, const ElasticBench& bench);

}  // namespace horo::tools
