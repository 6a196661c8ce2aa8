// A few random programs; `prove programs` runs many.

#include "tests/proof/programs.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/proof/run_program.h"

namespace horo::proof {
namespace {

std::string text_of(const ProgramResults& results) {
  std::string text;
  for (const std::string& line : results.wrong) text += line + "\n";
  return text;
}

// HORO_PROOF_SEED sets another seed: HORO_PROOF_SEED=7 ctest -R Programs.
TEST(Programs, HaveCorrectResultsOrErrorsThatNameRankAndMistake) {
  const char* seed = std::getenv("HORO_PROOF_SEED");
  ProgramOptions options;
  options.seed = seed != nullptr ? std::strtoull(seed, nullptr, 10) : 1;
  options.count = 50;
  const ProgramResults results = run_programs(options);
  EXPECT_EQ(text_of(results), "") << "from seed " << options.seed;
  EXPECT_EQ(results.ends.at("programs that ended as they should"), 50u);
}

// A correct item that the program declares to have a mistake: its success is a fault.
TEST(Programs, ASuccessInPlaceOfAnErrorIsFound) {
  Program program;
  program.size = 2;
  program.sets = {{0, 1}};
  Item item;
  item.name = "x";
  program.phases = {{{item}, false, {}}};
  EXPECT_EQ(text_of(run_program(program, ProgramOptions().stall_limit)), "");
  program.phases[0].items[0].mistake = Mistake::kJoined;
  EXPECT_NE(text_of(run_program(program, ProgramOptions().stall_limit)).find("ended well"), std::string::npos);
}

TEST(Programs, ARefusedSetIsFound) {
  Program program;
  program.size = 2;
  program.sets = {{0, 1}, {0, 1}};  // the same ranks twice: refused at the call, on both
  EXPECT_NE(text_of(run_program(program, ProgramOptions().stall_limit)).find("has the same ranks"), std::string::npos);
}

}  // namespace
}  // namespace horo::proof
