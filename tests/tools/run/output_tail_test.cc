// The lines that are kept of a program's output, and the exception that is found in them.
#include "tools/horo/run/output_tail.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace horo::tools {
namespace {

OutputTail words_of(const std::vector<std::string>& lines) {
  OutputTail words;
  for (const std::string& line : lines) words.add(line + "\n");
  return words;
}

const std::vector<std::string> kLost = {
    "Traceback (most recent call last):", "  File \"train.py\", line 3, in <module>", "    optimizer.step()",
    "horo.errors.PeerLost: rank 2 (host b) died"};

std::vector<std::string> operator+(std::vector<std::string> lines, const std::vector<std::string>& more) {
  lines.insert(lines.end(), more.begin(), more.end());
  return lines;
}

TEST(OutputTail, HasTheLastTenLines) {
  OutputTail words;
  for (int i = 0; i < 25; ++i) words.add(std::to_string(i) + "\n");
  EXPECT_EQ(words.lines().size(), 10u);
  EXPECT_EQ(words.lines().front(), "15");
  EXPECT_EQ(words.lines().back(), "24");
}

TEST(OutputTail, AProgressBarTakesOneLine) {
  OutputTail words;
  for (const char* line : {"begin\n", "1%\r", "50%\r", "100%\r\n", "end\n"}) words.add(line);
  EXPECT_THAT(words.lines(), testing::ElementsAre("begin", "100%", "end"));
}

TEST(OutputTail, ALongLineIsCut) {
  EXPECT_EQ(words_of({std::string(100'000, 'x')}).lines().front().size(), OutputTail::kMaxLineBytes + 3);
}

TEST(OutputTail, AnExceptionIsTheLineAfterATraceback) {
  const OutputTail words = words_of(kLost);
  EXPECT_EQ(words.exception(), kLost.back());
  EXPECT_EQ(words.loss(), kLost.back());
}

TEST(OutputTail, TheRankThatTorchPutsBeforeEachLineIsNoPartOfAnException) {
  std::vector<std::string> lines;
  for (const std::string& line : kLost) lines.push_back("[rank12]: " + line);
  EXPECT_EQ(words_of(lines).exception(), kLost.back());
  EXPECT_EQ(words_of(lines).loss(), kLost.back());
  EXPECT_EQ(words_of(lines).lines().back(), lines.back());
  for (const char* other : {"[rank]: ", "[rank1] ", "[rank1", "[rankx]: "}) {
    EXPECT_EQ(words_of({other + kLost[0], other + kLost[3]}).exception(), "") << other;
  }
}

TEST(OutputTail, TheLastExceptionCountsAndItsPeerLostCauseIsKept) {
  const OutputTail words = words_of(
      kLost + std::vector<std::string>{"", "During handling of the above exception, another exception occurred:", "",
                                       "Traceback (most recent call last):", "  File \"train.py\", line 5",
                                       "RuntimeError: training failed"});
  EXPECT_EQ(words.exception(), "RuntimeError: training failed");
  EXPECT_EQ(words.loss(), kLost.back());
}

TEST(OutputTail, TheStackThatPybind11AddsIsPartOfAnExceptionOfDdp) {
  const std::string loss = "PeerLost: rank 1 (host b, pid 7) is lost";
  const std::string text = "RuntimeError: Got the following error when running the callback: " + loss;
  const std::vector<std::string> raised = {"Traceback (most recent call last):", "  File \"train.py\"", text, "",
                                           "At:"};
  const std::vector<std::string> stack(20, "  work.py(66): _end");
  EXPECT_EQ(words_of(raised + stack + std::vector<std::string>{""}).exception(), text);
  EXPECT_EQ(words_of(raised + stack).loss(), loss);
  EXPECT_EQ(words_of(raised + stack + std::vector<std::string>(10, "going on")).exception(), "");
}

TEST(OutputTail, AnExceptionFarAboveTheEndIsIgnored) {
  EXPECT_EQ(words_of(kLost + std::vector<std::string>(11, "going on")).exception(), "");
  EXPECT_EQ(words_of(kLost + std::vector<std::string>(10, "its long text")).exception(), kLost.back());
}

TEST(OutputTail, ACppExceptionIsFound) {
  const OutputTail words = words_of(
      {"terminate called after throwing an instance of 'horo::PeerLost'", "  what():  rank 1: rank 0 was lost"});
  EXPECT_EQ(words.exception(), "horo::PeerLost: rank 1: rank 0 was lost");
  EXPECT_EQ(words.loss(), words.exception());
}

TEST(OutputTail, OtherErrorsAreNotPeerLost) {
  for (const char* line : {"ValueError: no PeerLost here", "mine.NotPeerLost: rank 1", "KeyError: 'PeerLost'"}) {
    EXPECT_EQ(words_of({"Traceback (most recent call last):", "  File", line}).loss(), "") << line;
  }
}

TEST(OutputTail, AMismatchBecauseARankHasLeftIsItsLoss) {
  const auto loss = [](const std::string& line) {
    return words_of({"Traceback (most recent call last):", "  File", line}).loss();
  };
  EXPECT_EQ(loss("horo.errors.Mismatch: tensor 'of rank 7': rank 1 has left (horo.shutdown, or the end of"),
            "rank 1 has left (horo.shutdown, or the end of");
  EXPECT_EQ(loss("horo.errors.Mismatch: all_reduce of tensor 'x': ranks disagree: shape [2] on rank 0"), "");
  EXPECT_EQ(loss("RuntimeError: rank 1 has left (horo.shutdown"), "");
}

TEST(RankLost, IsTheFirstNamedRankOtherThanTheReporter) {
  EXPECT_EQ(rank_lost("horo.PeerLost: rank 2 (host b) died", 0), 2);
  EXPECT_EQ(rank_lost("horo.PeerLost: rank 1: rank 12 was lost", 1), 12);
  EXPECT_EQ(rank_lost("rank 0: ranks 2, 3 did not connect", 0), 2);
  EXPECT_EQ(rank_lost("rank 3: crank 1 of rank four", 3), std::nullopt);
  EXPECT_EQ(rank_lost("", 3), std::nullopt);
}

}  // namespace
}  // namespace horo::tools
