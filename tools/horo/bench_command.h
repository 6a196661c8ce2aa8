// `horo bench`: what is measured, on which worlds. A process that is not one of the ranks of a job yet starts itself
// once per rank, as `horo run` would.
#pragma once

#include <string>
#include <vector>

#include "tools/horo/bench.h"
#include "tools/horo/bench_against.h"

namespace horo {

struct BenchOptions {
  std::string ranks;  // worlds to measure: "2,4" or "2..8"; empty: those of this benchmark
  std::string dtypes = "float32";
  std::string order = "canonical";
  std::string transport;  // empty: as HORO_TRANSPORT has it
  CollectiveBench collective;
  AgreeBench agree;
  bool no_header = false;
  std::size_t error_elements = 20'000;
  KernelsBench kernels;
  NetBench net;
  AgainstOptions against;
  std::string path;  // of a contestant
};

// `name`: a collective, agree, wire, net, error, kernels or contestant; empty: a comparison; `arguments`: those with
// which this program can be started again. The exit code. Throws std::invalid_argument.
int run_bench(const std::string& name, const BenchOptions& options, const std::vector<std::string>& arguments);

std::vector<std::string> words_for_dtype();
std::vector<std::string> words_for_collective();  // that move data among all ranks
// The type of that name. Throws std::invalid_argument naming the option.
DType dtype_of(const std::string& option, const std::string& word);
CollectiveKind kind_of(const std::string& option, const std::string& word);

}  // namespace horo
