// What `horo why` prints.
#include "tools/horo/run/why_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tools/horo/run/why_question.h"

namespace horo::tools {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

JobWaits waits_of(int ranks) {
  JobWaits waits;
  waits.status.job = 77;
  waits.status.ranks = waits.status.size = ranks;
  for (int id = 0; id < ranks; ++id) {
    waits.status.members.push_back({id, id, 100 + id, "running", ""});
    waits.starts.push_back({id, true, true, std::nullopt, "", ""});
  }
  waits.report.emplace();
  waits.report->size = ranks;
  for (int rank = 0; rank < ranks; ++rank) waits.report->sites.push_back({{rank}, true, "train.py:60 main"});
  return waits;
}

// The text after the way through JSON.
std::string text_of(const JobWaits& waits) {
  const JobWaits again = waits_from_json(to_json(waits));
  EXPECT_EQ(is_explained(again), is_explained(waits));
  return why_text(again);
}

TEST(WhyText, AHealthyJobHasOneLine) {
  JobWaits waits = waits_of(2);
  EXPECT_EQ(text_of(waits), "job 77: no rank waits for another for 1 s or more\n");
  waits.report->waits.push_back({{"x"}, 0, {0}, {1}, false, false, "", milliseconds(900)});
  waits.status.members[1].steps.emplace();
  waits.status.members[1].steps->steps = 41;
  waits.status.members[1].steps->age_s = 0.25;
  EXPECT_EQ(text_of(waits),
            "job 77: no rank waits for another for 1 s or more; 41 steps, the last one ended 0.2 s ago\n");
  waits.status.members[1].steps->age_s = 31;
  EXPECT_THAT(text_of(waits), HasSubstr("31.0 s ago\n  rank 0 is here:\n    train.py:60 main\n  rank 1 is here:\n"))
      << "a long step: all compute, somewhere";
}

TEST(WhyText, AWaitNamesBothSidesAndWhereTheyAre) {
  JobWaits waits = waits_of(3);
  waits.report->waits.push_back({{"a", "b"}, 3, {0, 2}, {1}, false, false, "", milliseconds(12'340)});
  waits.report->sites = {{{0, 2}, true, "train.py:60 main"}, {{1}, true, "evaluate.py:7 score\ntrain.py:71 main"}};
  EXPECT_EQ(text_of(waits),
            "job 77: ranks 0, 2 wait for rank 1, for 12.3 s: tensors 'a', 'b' and 3 more\n"
            "  ranks 0, 2 are here:\n    train.py:60 main\n"
            "  rank 1 is here:\n    evaluate.py:7 score\n    train.py:71 main\n");
  waits.status.members[1].state = "stopped";
  waits.report->sites[1] = {{1}, false, ""};
  EXPECT_THAT(text_of(waits),
              AllOf(HasSubstr("  rank 1 is stopped (SIGSTOP, or a debugger): kill -CONT 101 lets it go on\n"),
                    Not(HasSubstr("answered"))));
  waits.status.members[1].state = "running";
  EXPECT_THAT(text_of(waits), HasSubstr("  rank 1 has not answered: no Python thread can run there"));
}

TEST(WhyText, ADeadlockIsNamed) {
  JobWaits waits = waits_of(2);
  waits.report->waits = {{{"x"}, 0, {0}, {1}, false, false, "", milliseconds(5'000)},
                         {{"y"}, 0, {1}, {0}, false, true, " of process set 'tp'", milliseconds(4'000)}};
  waits.report->deadlocked = {0, 1};
  EXPECT_THAT(text_of(waits), StartsWith("job 77: rank 0 waits for rank 1, for 5.0 s: tensor 'x'\n"
                                         "job 77: rank 1 waits for rank 0, for 4.0 s: tensor 'y' of process set 'tp', "
                                         "not all of which it has submitted\n"
                                         "  ranks 0, 1 wait for one another: none of them can go on\n"));
}

TEST(WhyText, ARankThatIsStoppedInTheMiddleOfACollectiveIsNamed) {
  JobWaits waits = waits_of(2);
  waits.report->in_flight = "layer.weight";
  waits.report->sites[1].answered = false;
  waits.status.members[1].state = "stopped";
  EXPECT_THAT(text_of(waits), StartsWith("job 77: no tensor waits to be submitted, but rank 1 does not answer; tensor "
                                         "'layer.weight' is in flight\n  rank 1 is stopped"));
  waits.report.reset();
  waits.fault = "rank 0 is stopped, and cannot be asked";
  EXPECT_THAT(text_of(waits), StartsWith("job 77: rank 0 is stopped, and cannot be asked\n  rank 1 is stopped"));
  EXPECT_TRUE(is_explained(waits));
  waits.status.members[1].state = "running";
  EXPECT_FALSE(is_explained(waits)) << text_of(waits);
}

TEST(WhyText, InTheStartTheRanksAreNamedThatHaveNotCalledInit) {
  JobWaits waits = waits_of(3);
  waits.report.reset();
  waits.fault = "it starts";
  for (RankStart& start : waits.starts) start = {start.id, false, false, std::nullopt, "", "python3 sleeps"};
  EXPECT_THAT(text_of(waits), StartsWith("job 77: no rank has called horo.init() yet\n  rank 0: process 100, python3"));
  for (const int id : {0, 2}) {
    waits.starts[static_cast<std::size_t>(id)] = {id, true, false, 31.2, "train.py:3 main", ""};
  }
  EXPECT_EQ(text_of(waits),
            "job 77: ranks 0, 2 wait in horo.init() for rank 1, which has not called it, for 31.2 s\n"
            "  ranks 0, 2 are here:\n    train.py:3 main\n  rank 1: process 101, python3 sleeps\n");
  waits.starts[1] = {1, true, false, 0.5, "", ""};
  EXPECT_THAT(text_of(waits), HasSubstr("ranks 0-2 wait in horo.init() for one another: they connect, for 31.2 s"));
  waits.status.size = 6;
  EXPECT_THAT(text_of(waits), HasSubstr("for the ranks of the other hosts"));
}

TEST(WhyText, TextsOfRanksCannotHarmATerminal) {
  JobWaits waits = waits_of(2);
  waits.report->waits.push_back({{"\x1b[2J"}, 0, {0}, {1}, false, false, "", milliseconds(5'000)});
  waits.report->sites[0].text = "\x1b[31m\nline";
  const std::string text = text_of(waits);
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
  EXPECT_THAT(text, HasSubstr("'\\x1b[2J'"));
  EXPECT_THROW(waits_from_json("{\"schema\": 2}"), std::runtime_error);
  EXPECT_THROW(waits_from_json("{"), std::runtime_error);
}

}  // namespace
}  // namespace horo::tools
