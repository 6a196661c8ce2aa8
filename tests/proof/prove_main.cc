// prove: runs many of the cases of proof_tests. tools/soak starts it.
//
//   prove cases --seed S --jobs N    random collectives against the reference; prints the seeds and small cases of
//   faults prove bits                       a table with the hash of each sum, by every algorithm prove costs the table
//   of docs/collectives.md prove programs --seed S --count N --at-once K
//                                    random programs over three overlapping process sets

#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <map>
#include <stdexcept>
#include <string>

#include "tests/proof/bits.h"
#include "tests/proof/costs.h"
#include "tests/proof/run_program.h"
#include "tests/proof/run_round.h"

namespace horo::proof {
namespace {

using Options = std::map<std::string, std::string>;

Options read_options(int argc, char** argv) {
  Options options;
  for (int i = 2; i + 1 < argc; i += 2) options[argv[i]] = argv[i + 1];
  if (argc % 2 != 0) throw std::invalid_argument("expected --name value");
  return options;
}

std::uint64_t number(const Options& options, const std::string& name, std::uint64_t otherwise) {
  const auto found = options.find(name);
  return found == options.end() ? otherwise : std::stoull(found->second);
}

int prove_cases(const Options& options) {
  const Tally tally = run_rounds(number(options, "--seed", 1), number(options, "--jobs", 10'000));
  for (const auto& [what, jobs] : tally.ran) std::cout << jobs << " " << what << "\n";
  std::cout << describe(tally) << "rounds " << tally.rounds << " jobs " << tally.jobs << " outputs " << tally.outputs
            << " wrong " << tally.found.size() + tally.flaky.size() << "\n";
  return tally.found.empty() && tally.flaky.empty() ? 0 : 1;
}

int prove_bits() {
  const BitOptions options;
  const BitTable table = bit_table(options);
  std::cout << print(table, options);
  for (const std::string& wrong : table.wrong) std::cout << "wrong: " << wrong << "\n";
  return table.wrong.empty() ? 0 : 1;
}

int prove_programs(const Options& options) {
  ProgramOptions program;
  program.seed = number(options, "--seed", 1);
  program.count = number(options, "--count", 5'000);
  program.at_once = static_cast<int>(number(options, "--at-once", 16));
  const ProgramResults results = run_programs(program);
  for (const auto& [end, times] : results.ends) std::cout << times << " " << end << "\n";
  std::cout << "longest " << results.longest.count() << " ms, of limits of " << program.stall_limit.count() << "\n";
  for (const std::string& wrong : results.wrong) std::cout << "wrong: " << wrong << "\n";
  return results.wrong.empty() ? 0 : 1;
}

int prove(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  const Options options = argc > 1 ? read_options(argc, argv) : Options();
  if (what == "cases") return prove_cases(options);
  if (what == "programs") return prove_programs(options);
  if (what == "costs") {
    std::cout << cost_table();
    return 0;
  }
  if (what == "bits") return prove_bits();
  throw std::invalid_argument("expected cases, programs, costs or bits");
}

}  // namespace
}  // namespace horo::proof

int main(int argc, char** argv) {
  try {
    return horo::proof::prove(argc, argv);
  } catch (const std::exception& error) {
    std::cerr << "prove: " << error.what() << "\n";
    return 2;
  }
}
