#include "horo/base/json_text.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

namespace horo {
namespace {

TEST(JsonText, AnyBytesAreAJsonString) {
  std::mt19937 random(1);
  const std::string pieces[] = {"a",    "\"",           "\\",      "\n", "\xc3\xa9", "\xf0\x9d\x9b\xbc",
                                "\xff", "\xed\xa0\x80", "\xe2\x82"};
  for (int i = 0; i < 3'000; ++i) {
    std::string text;
    while (random() % 5 != 0) {
      text += random() % 2 == 0 ? pieces[random() % std::size(pieces)] : std::string(1, static_cast<char>(random()));
    }
    ASSERT_TRUE(nlohmann::json::accept(json_quoted(text))) << json_quoted(text);
  }
}

TEST(JsonText, CharactersStayAndOtherBytesAreShownAsUnknown) {
  const std::string valid("a\"\\\n\0\xc3\xa9\xe2\x82\xac\xf0\x9d\x9b\xbc", 14);
  EXPECT_EQ(nlohmann::json::parse(json_quoted(valid)), valid);
  EXPECT_EQ(json_quoted("a\xff\xc3"), "\"a\xef\xbf\xbd\xef\xbf\xbd\"");
  EXPECT_EQ(json_quoted("\xc0\xaf"), "\"\xef\xbf\xbd\xef\xbf\xbd\"");
}

}  // namespace
}  // namespace horo
