// `horo bench`: runs a benchmark in one or more worlds. A process that is not a rank of a job starts itself once per
// rank, as `horo run` would.
#pragma once

#include <string>
#include <vector>

#include "tools/horo/bench/bench.h"

namespace horo::tools {

struct BenchOptions {
  std::string ranks;  // worlds to measure: "2,4" or "2..8"; empty: the defaults of the benchmark
  std::string dtypes = "float32";
  std::string order = "canonical";
  std::string transport;  // empty: HORO_TRANSPORT
  CollectiveBench collective;
  AgreeBench agree;
  bool no_header = false;
  KernelsBench kernels;
  CudaBench cuda;
  NetBench net;
  ChoiceBench choice;
  SimulateBench simulate;
  ElasticBench elastic;
  std::string hosts;  // of elastic: NAMESPACE=ADDRESS,NAMESPACE=ADDRESS
  // The options of `choice`.
  std::string sizes = "8,64,512,2K,4K,8K,16K,32K,64K,128K,256K,512K,1M,2M,4M,8M,16M,64M";
  std::string collectives = "all_reduce";
  std::string transports = "shm,tcp";
  // The options of `simulate`.
  std::string simulated_sizes = "8,64K,1M,64M,1G";
  std::string simulated_collective = "all_reduce";
};

// `name`: a collective, agree, choice, elastic, simulate, wire, net, kernels or cuda. `arguments`: those of this
// process, to start it again as a rank. Returns the exit code. Throws std::invalid_argument.
int run_bench(const std::string& name, const BenchOptions& options, const std::vector<std::string>& arguments);

}  // namespace horo::tools
