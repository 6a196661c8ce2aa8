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
