#include "tools/horo/bench/lists.h"

#include <gmock/gmock.h>

#include <stdexcept>

namespace horo::tools {
namespace {

using testing::ElementsAre;

TEST(BenchLists, SizesHaveUnitsOf1024) {
  EXPECT_THAT(sizes_of("--sizes", "8,1K,64M,2G"), ElementsAre(8, 1 << 10, 64 << 20, std::size_t{2} << 30));
}

TEST(BenchLists, TheErrorForAnInvalidSizeNamesTheOption) {
  for (const char* text : {"", "0", "8,", "K", "8B", "8KK", "-1", "1T", "99999999999999999999", "2000G"}) {
    EXPECT_THROW(sizes_of("--sizes", text), std::invalid_argument) << text;
  }
}

TEST(BenchLists, SizeTextIsTheTextThatWasParsed) {
  for (const char* text : {"8", "1000", "1K", "1536", "64M", "2G"}) {
    EXPECT_EQ(size_text(sizes_of("--sizes", text).front()), text);
  }
}

TEST(BenchLists, WordsMustBeKnownAndUnique) {
  EXPECT_THAT(words_of("--against", "gloo,mpich", {"mpich", "gloo"}), ElementsAre("gloo", "mpich"));
  for (const char* text : {"", "nccl", "gloo,gloo", "gloo,,mpich"}) {
    EXPECT_THROW(words_of("--against", text, {"mpich", "gloo"}), std::invalid_argument) << text;
  }
}

TEST(BenchLists, WorldsAreAListOrARange) {
  EXPECT_THAT(worlds_of("2,4"), ElementsAre(2, 4));
  EXPECT_THAT(worlds_of("2..4"), ElementsAre(2, 3, 4));
  for (const char* text : {"", "0", "two", "2..", "4..2", "2,x", "4096"}) {
    EXPECT_THROW(worlds_of(text), std::invalid_argument) << text;
  }
}

}  // namespace
}  // namespace horo::tools
