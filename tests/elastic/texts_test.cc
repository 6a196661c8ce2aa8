#include "elastic/texts.h"

#include <gtest/gtest.h>

#include <numeric>

namespace horo {
namespace {

TEST(ElasticTexts, ControlCharactersAreNotPrinted) {
  EXPECT_EQ(printable("a\x1b[31m\r\n\x7f\t"), "a\\x1b[31m\\x0d\\x0a\\x7f\\x09");
  EXPECT_EQ(printable("\xc2\x9b"
                      "31m"),
            "\\xc2\\x9b31m");
}

TEST(ElasticTexts, OnlyValidCharactersArePrinted) {
  EXPECT_EQ(printable("Größe \xe2\x82\xac \xf0\x9f\x99\x82"), "Größe \xe2\x82\xac \xf0\x9f\x99\x82");
  EXPECT_EQ(printable("\xff\xc3"), "\\xff\\xc3");
  EXPECT_EQ(printable("\xe2\x82"), "\\xe2\\x82");
}

TEST(ElasticTexts, ALongTextIsCut) {
  EXPECT_EQ(printable(std::string(1000, 'x')), std::string(400, 'x') + "...");
}

TEST(ElasticTexts, RanksOfAnEpochGetTheirNumbersAtTheStart) {
  const std::vector<MemberId> members{0, 2, 5};
  EXPECT_EQ(at_start("rank 1 (host a, pid 2) is lost: seen by rank 2", members),
            "rank 2 (host a, pid 2) is lost: seen by rank 5");
  EXPECT_EQ(at_start("ranks 0, 1 and 2 of 3", members), "ranks 0, 2 and 5 of 3");
  EXPECT_EQ(at_start("rank 1 (rank 2 at the start), rank 7", members), "rank 2 (rank 2 at the start), rank 7");
  EXPECT_EQ(at_start("crank 1, rank, rank x, rank 12345678901234567890", members),
            "crank 1, rank, rank x, rank 12345678901234567890");
  EXPECT_EQ(at_start("rank 1", members), "rank 2");
  EXPECT_EQ(at_start("", members), "");
}

TEST(ElasticTexts, AFailureOfAMemberIsToldWithoutItsName) {
  EXPECT_EQ(without_subject("rank 1 (host a.b, rank 2 at the start) ended by an exception at x.py:3: E: no", 1),
            "host a.b: an exception at x.py:3: E: no");
  EXPECT_EQ(without_subject("rank 1 (host a) ended by an exception: E", 1), "host a: an exception: E");
  EXPECT_EQ(without_subject("rank 1: Too many open files", 1), "Too many open files");
  for (const char* text : {"rank 12: no", "rank 2: no", "no memory", "rank 1 gave up", "rank 1 (host a) went"})
    EXPECT_EQ(without_subject(text, 1), text);
}

TEST(ElasticTexts, DurationsAndRanksAreWords) {
  EXPECT_EQ(duration_text(std::chrono::milliseconds(24)), "24 ms");
  EXPECT_EQ(duration_text(std::chrono::seconds(10)), "10 s");
  EXPECT_EQ(duration_text(std::chrono::milliseconds(1500)), "1.5 s");
  EXPECT_EQ(ranks_text({3}), "rank 3");
  EXPECT_EQ(ranks_text({0, 1}), "ranks 0, 1");
  EXPECT_EQ(ranks_text({0, 1, 2, 3}), "ranks 0, 1, 2, 3");
  std::vector<MemberId> many(20);
  std::iota(many.begin(), many.end(), MemberId{0});
  EXPECT_EQ(ranks_text(many), "ranks 0 to 19");
  many.insert(many.end(), {21, 22, 30});
  EXPECT_EQ(ranks_text(many), "ranks 0 to 19, 21, 22, 30");
}

}  // namespace
}  // namespace horo
