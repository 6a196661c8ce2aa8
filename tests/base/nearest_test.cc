// The nearest right word.
#include "horo/base/nearest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace horo {
namespace {

using testing::ElementsAre;

const std::vector<std::string> kWords = {"run", "bench", "rendezvous", "--output-dir", "--ranks"};

TEST(Nearest, ALetterMoreLessOrExchangedIsNear) {
  for (const char* wrong : {"rn", "rnu", "runn", "Run"}) EXPECT_EQ(nearest_word(wrong, kWords), "run") << wrong;
  EXPECT_EQ(nearest_word("--output_dri", kWords), "--output-dir");
  EXPECT_EQ(nearest_text("benhc", kWords), "; did you mean bench?");
}

TEST(Nearest, WordsThatDifferInMostLettersAreNotNear) {
  for (const char* wrong : {"", "x", "top", "tpo", "--verbatim"}) EXPECT_EQ(nearest_text(wrong, kWords), "") << wrong;
  EXPECT_EQ(nearest_word(std::string(100'000, 'r'), kWords), std::nullopt);
}

TEST(Nearest, TheWordsOfChoicesAreTaken) {
  EXPECT_THAT(words_in("tcp, shm or auto"), ElementsAre("tcp", "shm", "auto"));
  EXPECT_THAT(words_in("0 or 1"), ElementsAre("0", "1"));
}

}  // namespace
}  // namespace horo
