// The command line of horo-bench, which compares horo with other libraries.
#include <CLI/CLI.hpp>
#include <exception>
#include <iostream>
#include <stdexcept>

#include "bench/against/comparison.h"
#include "bench/against/group_driver.h"
#include "tools/horo/bench/lists.h"

namespace horo::bench {
namespace {

constexpr int kUsage = 2;  // exit code of a wrong command line

void add_options(CLI::App& app, ComparisonOptions& options) {
  const auto word = [&](const char* name, std::string& value, const char* what) {
    return app.add_option(name, value, what)->capture_default_str();
  };
  const auto number = [&](const char* name, int& value, const char* what, const CLI::Validator& range) {
    app.add_option(name, value, what)->check(range)->capture_default_str();
  };
  word("PEERS,--against", options.peers, "some of openmpi,openmpi-tcp,mpich,mpich-tcp,gloo");
  word("--collective", options.collective, "the collective that all contestants run")
      ->check(CLI::IsMember(tools::words_for_collective()));
  word("--ranks", options.ranks, "sizes of the worlds: 2, 2,4 or 2..8");
  word("--sizes", options.sizes, "bytes of the longer side, in bytes or as 64K, 1M");
  word("--dtype", options.dtypes, "element types, separated by commas");
  word("--paths", options.paths, "paths of horo: shm-bucket,shm-user,tcp,mpi,mpi-fast,abi,abi-1000,abi-1000-bucket");
  number("--rounds", options.rounds, "rounds; each contestant has one turn per round", CLI::Range(1, 10'000));
  number("--wait", options.wait_s, "longest wait for a quiet machine before a round, in s", CLI::Range(0, 3600));
  word("--hosts", options.hosts,
       "network namespaces as hosts: NAMESPACE=ADDRESS,NAMESPACE=ADDRESS (default: this host)");
  word("--interface", options.interface, "the interface with the address in each namespace");
  word("--json", options.json_file, "also write the results to this file");
  word("--csv", options.csv_file, "the same as CSV");
  word("--peers", options.drivers, "folder of the drivers (default: in the build tree of this program)");
}

int run_command(const std::vector<std::string>& arguments) {
  CLI::App app{"horo-bench: collectives of horo, Open MPI, MPICH and Gloo in turns (bench/README.md)", "horo-bench"};
  ComparisonOptions options;
  std::string path;
  add_options(app, options);
  CLI::App* driver = app.add_subcommand("driver", "")->group("");
  driver->add_option("path", path)->required();
  try {
    app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kUsage;
  }
  if (driver->parsed()) return run_group_driver(path);
  if (options.peers.empty()) throw std::invalid_argument("expected peers: horo-bench openmpi,mpich,gloo");
  return compare(options, arguments);
}

}  // namespace
}  // namespace horo::bench

int main(int argc, char** argv) {
  try {
    return horo::bench::run_command({argv + 1, argv + argc});
  } catch (const std::invalid_argument& error) {
    std::cerr << "horo-bench: " << error.what() << "\n";
    return horo::bench::kUsage;
  } catch (const std::exception& error) {
    std::cerr << "horo-bench: " << error.what() << "\n";
    return 1;
  }
}
