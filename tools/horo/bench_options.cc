#include "tools/horo/bench_options.h"

#include <cstddef>
#include <string>

#include "tools/horo/bench/lists.h"
#include "tools/horo/cli_words.h"

namespace horo::tools {
namespace {

void add_collective(CLI::App& bench, const std::string& name, BenchOptions& options) {
  CollectiveBench& sizes = options.collective;
  CLI::App* app =
      bench.add_subcommand(name, "Time and bandwidth of " + name + " by size, in the columns of nccl-tests");
  if (name == "all_reduce") app->alias("allreduce");
  app->add_option("--ranks", options.ranks, "ranks to start (more than one world: 2,4 or 2..8)")->default_str("2");
  app->add_option("--min", sizes.min_bytes, "smallest size, in bytes or as 64K, 1M")
      ->transform(CLI::AsSizeValue(false))
      ->capture_default_str();
  app->add_option("--max", sizes.max_bytes, "largest size")
      ->transform(CLI::AsSizeValue(false))
      ->check(CLI::Range(std::size_t{1}, std::size_t{1} << 40))
      ->capture_default_str();
  app->add_option("--dtype", options.dtypes, "element types, separated by commas")->capture_default_str();
  app->add_option("--order", options.order, "order of summation")
      ->check(one_of({"canonical", "fast"}))
      ->capture_default_str();
  app->add_option("--transport", options.transport, "instead of HORO_TRANSPORT")->check(one_of({"tcp", "shm", "auto"}));
  app->add_option("--rounds", sizes.rounds, "rounds of each size; 0: about half a second")
      ->check(CLI::Range(0, 1'000'000))
      ->capture_default_str();
  app->add_option("--json", sizes.json_file, "also write the results to this file");
  app->add_option("--csv", sizes.csv_file, "the same as CSV");
}

void add_kernels(CLI::App& bench, KernelsBench& options) {
  CLI::App* app =
      bench.add_subcommand("kernels", "GB/s of sums in one thread by type, number of inputs and instruction set");
  app->add_option("--rounds", options.rounds, "rounds; each has one turn of each contestant")
      ->check(CLI::Range(1, 10'000))
      ->capture_default_str();
  app->add_option("--cache", options.cache_bytes, "size of each input of the cache rows, in bytes or as 64K")
      ->transform(CLI::AsSizeValue(false))
      ->check(CLI::Range(std::size_t{8}, std::size_t{1} << 30))
      ->capture_default_str();
  app->add_option("--memory", options.memory_bytes, "size of each input of the memory rows")
      ->transform(CLI::AsSizeValue(false))
      ->check(CLI::Range(std::size_t{8}, std::size_t{1} << 36))
      ->capture_default_str();
}

void add_cuda(CLI::App& bench, CudaBench& options) {
  CLI::App* app =
      bench.add_subcommand("cuda", "The kernels of a CUDA device: their bits beside the CPU's, and GB/s beside copies");
  app->add_option("--device", options.device, "number of the device")->check(CLI::Range(0, 63))->capture_default_str();
  app->add_option("--rounds", options.rounds, "rounds; each has one turn of each contestant")
      ->check(CLI::Range(1, 1'000))
      ->capture_default_str();
  app->add_option("--bytes", options.bytes, "size of each input of the measurements, in bytes or as 64M")
      ->transform(CLI::AsSizeValue(false))
      ->check(CLI::Range(std::size_t{1} << 20, std::size_t{1} << 36))
      ->capture_default_str();
  app->add_option("--elements", options.most_elements, "the most elements of a comparison")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  app->add_option("--json", options.json_file, "also write the results to this file");
}

void add_net(CLI::App& bench, NetBench& options) {
  CLI::App* app =
      bench.add_subcommand("net", "Latency and bandwidth between two hosts, beside iperf3 in the same rounds");
  app->add_option("--rounds", options.rounds, "rounds; each has one turn of each contestant")
      ->check(CLI::Range(1, 1'000))
      ->capture_default_str();
  app->add_option("--pause", options.pause_s, "also measure the largest message after pauses of this many seconds")
      ->check(CLI::Range(0., 60.));
  app->add_option("--max", options.max_bytes, "largest message, in bytes or as 64K, 1M")
      ->transform(CLI::AsSizeValue(false))
      ->check(CLI::Range(std::size_t{64}, std::size_t{1} << 30))
      ->capture_default_str();
  app->add_option("--json", options.json_file, "also write the results to this file");
  app->footer(
      "Run on both hosts: horo run --nnodes 2 --node-rank 0 --addr 10.0.0.1:29400 --key-file key -n 1 horo bench net");
}

void add_choice(CLI::App& bench, BenchOptions& options) {
  CLI::App* app = bench.add_subcommand("choice", "The automatic choice beside every algorithm, in turns");
  const auto word = [&](const char* name, std::string& value, const char* what) {
    return app->add_option(name, value, what)->capture_default_str();
  };
  app->add_option("--ranks", options.ranks, "worlds to measure")->default_str("2..4");
  word("--transports", options.transports, "shm,tcp or one of them");
  word("--collectives", options.collectives, "collectives to measure");
  word("--sizes", options.sizes, "bytes of the longer buffer");
  word("--json", options.choice.json_file, "also write all rounds of all worlds to this file");
  app->add_option("--rounds", options.choice.rounds, "rounds; each has one turn of each contestant")
      ->check(CLI::Range(1, 10'000))
      ->capture_default_str();
}

void add_simulate(CLI::App& bench, BenchOptions& options) {
  CLI::App* app = bench.add_subcommand("simulate", "Predicted time of every algorithm on a described machine");
  app->add_option("--machine", options.simulate.machine_file, "description of the machine: bench/machines/*.json");
  app->add_option("--check", options.simulate.check_file,
                  "results of horo bench choice: half of the sizes calibrate the costs, the others are predicted");
  app->add_option("--ranks", options.ranks, "worlds, up to 16384")->default_str("8,64,512,4096,16384");
  app->add_option("--sizes", options.simulated_sizes, "bytes of the longer buffer")->capture_default_str();
  app->add_option("--collective", options.simulated_collective, "the collective")
      ->check(one_of(words_for_collective()))
      ->capture_default_str();
}

void add_elastic_bench(CLI::App& bench, BenchOptions& options) {
  ElasticBench& elastic = options.elastic;
  CLI::App* app =
      bench.add_subcommand("elastic", "Recovery of elastic jobs from killed ranks, and their cost without faults");
  const auto count = [&](const char* name, int& value, int least, const char* what) {
    app->add_option(name, value, what)->check(CLI::Range(least, 1'000'000))->capture_default_str();
  };
  app->add_option("--ranks", elastic.ranks, "ranks of each job")->check(CLI::Range(2, 63))->capture_default_str();
  app->add_option(
      "--hosts", options.hosts,
      "run the ranks in these network namespaces, NAME=ADDRESS,NAME=ADDRESS, which stand for hosts; each job "
      "then has one kill (bench/elastic_hosts makes the namespaces)");
  count("--kills", elastic.kills, 0, "killed ranks; 0: only the cost without faults");
  count("--tensors", elastic.tensors, 1, "tensors of each round");
  app->add_option("--bytes", elastic.bytes, "size of a tensor, in bytes or as 64K, 1M")
      ->transform(CLI::AsSizeValue(false))
      ->check(CLI::Range(std::size_t{4}, std::size_t{1} << 36))
      ->capture_default_str();
  app->add_option("--compute-ms", elastic.compute_ms, "processor time of a rank before each round")
      ->check(CLI::Range(0., 60'000.))
      ->capture_default_str();
  app->add_option("--transport", options.transport, "instead of HORO_TRANSPORT")->check(one_of({"tcp", "shm", "auto"}));
  app->add_flag("--in-buckets", elastic.in_buckets, "the tensors lie in the buckets of their plans");
  app->add_option("--resident", elastic.resident_bytes,
                  "memory that the killed rank holds, in small pages, as 4G; each job then has one kill")
      ->transform(CLI::AsSizeValue(false))
      ->check(CLI::Range(std::size_t{0}, std::size_t{1} << 40))
      ->capture_default_str();
  app->add_option("--resident-rank", elastic.resident_rank)->group("");
  app->add_option("--seed", elastic.seed, "of the victims and the moments")->capture_default_str();
  count("--rounds", elastic.rounds, 0, "rounds of the cost without faults; each has one turn of each contestant");
  count("--steps", elastic.steps, 0, "steps of a turn");
  app->add_flag("!--no-barrier", elastic.has_barrier)->group("");
  app->add_option("--json", elastic.json_file, "also write all values to this file");
}

}  // namespace

void add_bench(CLI::App& app, BenchOptions& options) {
  CLI::App* bench = app.add_subcommand("bench", "Measure horo on this machine");
  for (const std::string& name : words_for_collective()) add_collective(*bench, name, options);
  CLI::App* agree = bench->add_subcommand("agree", "Cost per step of negotiating many small tensors");
  agree->add_option("--ranks", options.ranks, "worlds to measure")->default_str("2,4");
  agree->add_option("--tensors", options.agree.tensors, "gradients per step")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  agree->add_option("--steps", options.agree.steps, "steps")->check(CLI::Range(1, 100'000))->capture_default_str();
  CLI::App* wire =
      bench->add_subcommand("wire", "Bytes sent by each algorithm, against its schedule and the kernel's counters");
  wire->add_option("--ranks", options.ranks, "worlds to measure")->default_str("2..8");
  wire->add_flag("--no-header", options.no_header)->group("");
  add_kernels(*bench, options.kernels);
  add_cuda(*bench, options.cuda);
  add_net(*bench, options.net);
  add_choice(*bench, options);
  add_simulate(*bench, options);
  add_elastic_bench(*bench, options);
}

}  // namespace horo::tools
