// scale.json, the text and the page.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <sstream>
#include <stdexcept>

#include "tests/tools/scale/random_rows.h"
#include "tools/horo/run/step_text.h"
#include "tools/horo/scale/page.h"
#include "tools/horo/scale/scale_document.h"
#include "tools/horo/scale/scale_folder.h"
#include "tools/horo/scale/scale_text.h"

namespace horo::tools {
namespace {

using testing::HasSubstr;
using testing::Not;

const std::string kHostile = "</script><img src=x onerror=alert(1)>\x1b[31m\x07\xff";

ScaleDocument document_for(const std::vector<RunData>& runs) {
  ScaleDocument document;
  document.version = "1.2.3";
  document.command = {"horo", "scale", "run", "-n", "1,2", "--", "python", "train.py"};
  document.cores = 8;
  document.model = "a processor";
  document.kernel = "Linux 6.1";
  document.plan.sizes = {1, 2};
  document.plan.run_ns = 1'000 * kMs;
  document.samples = 64;
  document.runs = runs;
  document.table = table_of(runs, false);
  return document;
}

ScaleDocument plain_document() {
  return document_for({run_of(1, 1, 50 * kMs), run_of(2, 1, 52 * kMs, 8 * kMs)});
}

TEST(ScaleJson, HasTheSameTextAfterItWasRead) {
  const ScaleJson json = to_json(plain_document());
  EXPECT_EQ(to_json(document_from(json))["table"], json["table"]);
  EXPECT_EQ(text_of(document_from(json)), text_of(plain_document()));
  EXPECT_EQ(page_of(ScaleJson::parse(written(json))), page_of(json));
  EXPECT_EQ(written(ScaleJson::parse(written(json))), written(json));
}

TEST(ScaleJson, KeepsWhatIsKnownOfALateRank) {
  Straggler late;
  late.rank = 1;
  late.exposed = 0.123456;
  late.share = 0.9;
  late.late = std::chrono::milliseconds(60);
  late.steps = 0.05;
  late.excess = std::chrono::milliseconds(58);
  late.bar = Bar::kCheckpoint;
  late.period = 20;
  late.correlation = 0.87;
  ScaleDocument document = plain_document();
  for (const When when : {When::kAlways, When::kPeriodic, When::kWithData, When::kAtRandom}) {
    for (const Cause cause : {Cause::kNotExplained, Cause::kBar, Cause::kCollection, Cause::kNoCore, Cause::kStopped}) {
      late.when = when;
      late.cause = cause;
      document.table.sizes[1].late = late;
      const ScaleJson json = to_json(document);
      EXPECT_EQ(straggler_text(*document_from(json).table.sizes[1].late), straggler_text(late));
      EXPECT_EQ(json["table"][1]["late"]["text"], straggler_text(late));
    }
  }
  ScaleJson wrong = to_json(document);
  wrong["table"][1]["late"]["cause"] = "fate";
  EXPECT_THROW(document_from(wrong), std::invalid_argument);
}

TEST(ScaleJson, HasIntegersAlone) {
  const std::string text = to_json(plain_document()).flatten().dump();
  EXPECT_THAT(text, Not(testing::ContainsRegex(":-?[0-9]+[.e]")));
}

TEST(ScaleJson, KeepsTheRowsOfAllRanks) {
  const ScaleJson json = to_json(plain_document());
  EXPECT_EQ(json["runs"][1]["rows"]["values"].size(), 2u * 17u);  // 1 s of steps of 60 ms
  EXPECT_EQ(json["runs"][1]["rows"]["values"][0].size(), json["runs"][1]["rows"]["fields"].size());
}

TEST(ScaleJson, OfAnotherKindIsRefused) {
  const ScaleJson json = to_json(plain_document());
  for (const char* part : {"format", "command", "machine", "plan", "table", "notes"}) {
    ScaleJson without = json;
    without.erase(part);
    EXPECT_THROW(document_from(without), std::invalid_argument) << part;
  }
  ScaleJson wrong = json;
  wrong["table"][1]["step_ns"] = 7;
  EXPECT_THROW(document_from(wrong), std::invalid_argument) << "its figures do not add up";
}

// The figures of a row of the table, from the efficiency on.
std::vector<double> figures_of(const std::string& line) {
  std::vector<double> figures;
  std::istringstream words(line);
  for (std::string word; words >> word;) {
    std::erase(word, ',');
    char* end = nullptr;
    const double value = std::strtod(word.c_str(), &end);
    if (*end == '\0') figures.push_back(value);
  }
  return figures;
}

std::string line_with(const std::string& text, const std::string& begin) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(begin)) return line;
  }
  return "";
}

TEST(ScaleText, TheLossesAndTheEfficiencyAddUpAsTheyAreShown) {
  std::mt19937_64 random(5);
  for (int i = 0; i < 1'000; ++i) {
    RunData base = run_of(1, 1, 40 * kMs), size = run_of(2, 1, 50 * kMs);
    for (RunData* run : {&base, &size}) {
      for (RankSums& rank : run->by_rank) {
        for (std::size_t bar = 0; bar < kBars; ++bar) {
          const std::int64_t more = up_to(random, 100 * kMs);
          rank.sums.bars[bar] += more;
          rank.sums.time += more;
        }
      }
    }
    const std::string text = text_of(document_for({base, size}));
    const std::vector<double> figures = figures_of(line_with(text, "      2 "));
    ASSERT_EQ(figures.size(), 10u) << text;  // the range and the unit are no numbers
    double sum = figures[2];
    for (std::size_t at = 4; at < figures.size(); ++at) sum += figures[at];
    ASSERT_NEAR(sum, 100.0, 0.001) << text;
  }
}

TEST(ScaleText, ShowsTheBarsOfTheLargestSize) {
  EXPECT_THAT(text_of(plain_document()), HasSubstr("  2 ranks   forward 52.0  |  skew 8.0  = 60.0 ms\n"));
}

TEST(ScaleText, BarsThatAreNotKnownAreNotZero) {
  ScaleDocument document = plain_document();
  SizeResult& size = document.table.sizes.back();
  size.bars[index_of(Bar::kInput)].reset();
  size.lost[index_of(Loss::kInput)].reset();
  const std::string text = text_of(document);
  EXPECT_THAT(text, HasSubstr("not known, and part of between: input"));
  EXPECT_THAT(text, HasSubstr(" n/a "));
}

TEST(ScaleText, HasNoControlCharacterOfAName) {
  ScaleDocument document = plain_document();
  document.command.push_back(kHostile);
  document.notes.push_back("failed with 4 ranks: " + kHostile);
  const std::string text = text_of(document_from(to_json(document)));
  EXPECT_THAT(text, HasSubstr("\\x1b[31m\\x07"));
  for (const char letter : text) EXPECT_TRUE(letter == '\n' || static_cast<unsigned char>(letter) >= 0x20);
}

TEST(ScalePage, NoNameEndsTheElementOfTheData) {
  ScaleDocument document = plain_document();
  document.command.push_back(kHostile);
  document.notes.push_back(kHostile + "<!--<script>");
  const std::string page = page_of(to_json(document));
  EXPECT_THAT(page, Not(HasSubstr("<img")));
  EXPECT_THAT(page, Not(HasSubstr("<!--")));
  const std::size_t begin = page.find("type=\"application/json\">") + 24;
  const std::string data = page.substr(begin, page.find('<', begin) - begin);
  const ScaleJson json = ScaleJson::parse(data);
  EXPECT_EQ(json["notes"], to_json(document)["notes"]);
  EXPECT_FALSE(json.contains("runs"));
}

TEST(ScalePage, AsksForNothingFromANetwork) {
  const std::string page(page_template());
  EXPECT_THAT(page, HasSubstr("default-src 'none'"));
  for (const char* way : {"https:", "src=", "@import", "fetch(", "XMLHttpRequest", "innerHTML", "document.write"}) {
    EXPECT_THAT(page, Not(HasSubstr(way)));
  }
  EXPECT_EQ(page.find("http:"), page.find("http://www.w3.org/2000/svg")) << "a name, not an address";
}

TEST(ScaleText, NumbersAreAsExactAsAStepNeeds) {
  EXPECT_EQ(step_text(54'940'000), "54.9 ms");
  EXPECT_EQ(step_text(3'141'592), "3.14 ms");
  EXPECT_EQ(step_text(141'592), "0.142 ms");
  EXPECT_EQ(rate_text(1'212'499), "1,212");
  EXPECT_EQ(rate_text(12'345), "12.3");
  EXPECT_EQ(rate_text(2'345), "2.35");
}

}  // namespace
}  // namespace horo::tools
