// docs/collectives.md agrees with the schedules.

#include "tests/proof/costs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <stdexcept>

#include "ring/schedule/schedule_json.h"

namespace horo::proof {
namespace {

std::string document() {
  std::ifstream file(HORO_SOURCE_DIR "/docs/collectives.md");
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(Document, HasTheCostsOfTheSchedules) {
  EXPECT_NE(document().find(cost_table()), std::string::npos)
      << "update docs/collectives.md with the output of `prove costs`";
}

// The schedules in the document.
std::string shown_schedules() {
  const std::string text = document(), mark = "```json\n";
  const std::size_t begin = text.find(mark) + mark.size();
  return text.substr(begin, text.find("```", begin) - begin);
}

TEST(Document, ShowsCorrectSchedules) {
  const GivenSchedules given = schedules_from_json(shown_schedules(), "docs/collectives.md");
  EXPECT_EQ(given.schedules.size(), 2u);
  EXPECT_EQ(given.schedules.front().order, Order::kCanonical);
}

TEST(Document, QuotesTheMessageForAWrongSchedule) {
  std::string wrong = shown_schedules();
  const std::string sum = "[0, 2, -1]";
  wrong.replace(wrong.find(sum), sum.size(), "[0]");
  try {
    schedules_from_json(wrong, "mine.json");
    FAIL() << "the wrong schedule was accepted";
  } catch (const std::invalid_argument& refused) {
    const std::string quoted = "*\"" + std::string(refused.what()) + "\"*";
    std::string text = document();
    std::replace(text.begin(), text.end(), '\n', ' ');  // the quotation may be cut over two lines
    EXPECT_NE(text.find(quoted), std::string::npos) << quoted;
  }
}

}  // namespace
}  // namespace horo::proof
