#include "tools/horo/run/job_status.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <stdexcept>

#include "tools/horo/run/status_text.h"

namespace horo::tools {
namespace {

JobStatus sample() {
  JobStatus status;
  status.job = 12;
  status.process = 11;
  status.title = "horo run";
  status.command = {"python", "train.py"};
  status.started_s = 1.7e9;
  status.age_s = 62.5;
  status.ranks = status.size = 3;
  status.min_ranks = 2;
  status.slots = 3;
  status.epoch = 1;
  status.members = {{0, 0, 20, "running", "", MemberFigures{7, 9, 1, "layer", 0.001, true}},
                    {1, std::nullopt, 21, "died", "signal 9 (SIGKILL)", {}},
                    {2, 1, 22, "stopped", "", MemberFigures{6, 8, 0, "", 65, false}}};
  status.story = {{1.7e9 + 0.25, "rank 1 died"}};
  status.dropped = 4;
  return status;
}

TEST(JobStatus, ArrivesAsItWasWritten) {
  const std::string json = to_json(sample());
  EXPECT_EQ(to_json(status_from_json(json)), json);
  const JobStatus again = status_from_json(json);
  EXPECT_EQ(again.members[0].figures->oldest, "layer");
  EXPECT_FALSE(again.members[1].rank.has_value());
  EXPECT_EQ(again.story[0].text, "rank 1 died");
}

TEST(JobStatus, TheTextNamesEachMemberAndEvent) {
  const std::string text = text_of(sample());
  EXPECT_EQ(text.substr(0, text.rfind("  ", text.size() - 15)),
            "job 12 (horo run, process 11): python train.py\n"
            "  elastic, 2 of 3 ranks, --min-np 2, epoch 1, runs for 1 min 2 s\n"
            "\n"
            "  id  rank  pid  state    rounds  collectives  in flight\n"
            "   0     0   20  running       7            9          1  oldest in flight: layer\n"
            "   1     -   21  died          -            -          -  signal 9 (SIGKILL)\n"
            "   2     1   22  stopped       6            8          0  figures of 1 min 5 s ago\n"
            "\n"
            "  (4 earlier events)\n");
  EXPECT_TRUE(text.ends_with(".250  rank 1 died\n")) << text;
}

TEST(JobStatus, ARankThatJoinsHasNoRankYet) {
  JobStatus status = sample();
  status.slots = 4;
  status.members.push_back({3, std::nullopt, 23, "ready", "", {}});
  const std::string text = text_of(status);
  EXPECT_NE(text.find("elastic, 2 of 4 ranks"), std::string::npos) << text;
  EXPECT_NE(text.find("   3     -   23  ready "), std::string::npos) << text;
}

TEST(JobStatus, AJobThatIsNotElasticHasNoFigures) {
  JobStatus status = sample();
  status.min_ranks.reset();
  status.members = {{0, 0, 20, "running", "", {}}};
  status.story.clear();
  status.size = 4;
  EXPECT_EQ(text_of(status),
            "job 12 (horo run, process 11): python train.py\n"
            "  static, 4 ranks, 3 of them on this host, runs for 1 min 2 s\n"
            "\n"
            "  rank  pid  state\n"
            "     0   20  running\n");
  EXPECT_EQ(list_of({status}),
            "job       time  ranks                                    command\n"
            " 12  1 min 2 s  static, 4 ranks, 3 of them on this host  python train.py\n");
}

TEST(JobStatus, NoTextReachesTheTerminalAsAControlCharacter) {
  JobStatus status = sample();
  status.command = {"\x1b[31m", std::string(10'000, 'x'), "\xff"};
  status.members[1].text = "\x1b]0;title\x07\n";
  status.members[0].figures->oldest = "a\rb";
  const std::string json = to_json(status);
  EXPECT_LT(json.size(), 3'000U);
  EXPECT_NE(json.find("\\\\x1b[31m"), std::string::npos);
  status.title = "\x1b[2J";  // a document of another process
  status.story[0].text = "\x1b[H";
  const std::string text = text_of(status) + list_of({status});
  EXPECT_EQ(text.find_first_of("\x1b\x07\r\xff"), std::string::npos) << text;
}

TEST(JobStatus, ALongCommandLineIsCut) {
  JobStatus status = sample();
  status.command.assign(1'000, "word");
  EXPECT_EQ(status_from_json(to_json(status)).command.size(), 65U);
  EXPECT_LT(list_of({status}).size(), 500U);
}

TEST(JobStatus, AnotherSchemaOrGarbageIsRefused) {
  for (const char* text : {"", "{", "[]", "{}", "null", R"({"schema": 2})", R"({"schema": "1"})"}) {
    EXPECT_THROW(status_from_json(text), std::runtime_error) << text;
  }
  const auto whole = nlohmann::json::parse(to_json(sample()));
  for (const auto& [key, value] : whole.items()) {
    if (key == "elastic") continue;                                        // as min_np says
    if (key == "slots" || key == "checkpoint" || key == "late") continue;  // may be missing
    auto less = whole;
    less.erase(key);
    EXPECT_THROW(status_from_json(less.dump()), std::runtime_error) << key;
  }
}

TEST(JobStatus, TimesAreWords) {
  EXPECT_EQ(elapsed_text(-1), "0 s");
  EXPECT_EQ(elapsed_text(59.9), "59 s");
  EXPECT_EQ(elapsed_text(3'599), "59 min 59 s");
  EXPECT_EQ(elapsed_text(7'500), "2 h 5 min");
  EXPECT_EQ(elapsed_text(90'000), "1 d 1 h");
}

TEST(Story, KeepsTheLastLines) {
  Story story;
  for (std::size_t i = 0; i < Story::kMostLines; ++i) story.add("event " + std::to_string(i), 1);
  EXPECT_EQ(story.dropped(), 0U);
  story.add("two\nlines\x1b\n", 2);
  EXPECT_EQ(story.dropped(), 2U);
  EXPECT_EQ(story.lines().size(), Story::kMostLines);
  EXPECT_EQ(story.lines().front().text, "event 2");
  EXPECT_EQ(story.lines().back().text, "lines\\x1b");
  story.add(std::string(100'000, 'x'), 3);
  EXPECT_LT(story.lines().back().text.size(), 500U);
}

}  // namespace
}  // namespace horo::tools
