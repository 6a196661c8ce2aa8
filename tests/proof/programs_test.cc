// A few random programs; prove programs runs many.

#include "tests/proof/programs.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/proof/perform.h"

namespace horo::proof {
namespace {

std::string text_of(const Performance& performance) {
  std::string text;
  for (const std::string& line : performance.wrong) text += line + "\n";
  return text;
}

// Another seed for each run of the tests on demand: HORO_PROOF_SEED=7 ctest -R Programs.
TEST(Programs, EndRightOrSayWhoAndWhatWasWrong) {
  const char* seed = std::getenv("HORO_PROOF_SEED");
  PerformOptions options;
  options.seed = seed != nullptr ? std::strtoull(seed, nullptr, 10) : 1;
  options.count = 50;
  const Performance performance = perform_many(options);
  EXPECT_EQ(text_of(performance), "") << "from seed " << options.seed;
  EXPECT_EQ(performance.ends.at("programs that ended as they should"), 50u);
}

// An item that nothing is wrong with, though the program says so: it ends well, and that is wrong.
TEST(Programs, AnEndThatShouldHaveBeenAFailureIsFound) {
  Program program;
  program.size = 2;
  program.sets = {{0, 1}};
  Item item;
  item.name = "x";
  program.phases = {{{item}, false, {}}};
  EXPECT_EQ(text_of(perform(program, PerformOptions().stall_limit)), "");
  program.phases[0].items[0].mistake = Mistake::kJoined;
  EXPECT_NE(text_of(perform(program, PerformOptions().stall_limit)).find("ended well"), std::string::npos);
}

TEST(Programs, ASetThatIsRefusedIsNoRightEnd) {
  Program program;
  program.size = 2;
  program.sets = {{0, 1}, {0, 1}};  // the same ranks twice: refused at the call, on both
  EXPECT_NE(text_of(perform(program, PerformOptions().stall_limit)).find("has the same ranks"), std::string::npos);
}

}  // namespace
}  // namespace horo::proof
