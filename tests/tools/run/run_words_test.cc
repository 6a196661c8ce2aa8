// The words of other launchers, and files of options.
#include "tools/horo/run/run_words.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <stdexcept>

#include "tools/horo/run/lines.h"

namespace horo::tools {
namespace {

using testing::ElementsAre;
using testing::ElementsAreArray;
using testing::HasSubstr;

using Words = std::vector<std::string>;

const std::vector<KnownOption> kOptions = {{{"--ranks", "--num-proc", "-n"}, true},
                                           {{"--nnodes"}, true},
                                           {{"--node-rank"}, true},
                                           {{"--addr"}, true},
                                           {{"--env", "-x"}, true, false, true},
                                           {{"--config"}, true},
                                           {{"--output-dir"}, true},
                                           {{"--part"}, false, true},
                                           {{"--verbose", "-v"}, false},
                                           {{"--help"}, false}};

Words words(const Words& typed) {
  return own_words(typed, kOptions);
}

std::string refusal(const Words& typed) {
  try {
    words(typed);
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "accepted";
}

std::string file_with(const std::string& text) {
  std::string path = testing::TempDir() + "config_" + std::to_string(::getpid()) + ".yaml";
  std::ofstream(path) << text;
  return path;
}

TEST(RunWords, TorchrunsWordsMeanTheSame) {
  for (const char* option : {"--nproc-per-node=4", "--nproc_per_node=4"}) {
    EXPECT_THAT(words({"--standalone", option, "--nnodes=1", "train.py", "--lr", "1"}),
                ElementsAre("-n", "4", "--nnodes", "1", "train.py", "--lr", "1"));
  }
  EXPECT_THAT(words({"--nproc-per-node", "2", "--rdzv-backend=c10d", "--rdzv_endpoint", "localhost:0", "a"}),
              ElementsAre("-n", "2", "a"));
  EXPECT_THAT(words({"--nnodes", "2", "--node_rank=1", "--master-addr", "10.0.0.1", "--master_port=4000", "a"}),
              ElementsAre("--node-rank", "1", "--nnodes", "2", "--addr", "10.0.0.1:4000", "a"));
  EXPECT_THAT(words({"--nnodes", "2:2", "--rdzv-endpoint=node0:29400", "a"}),
              ElementsAre("--nnodes", "2", "--addr", "node0:29400", "a"));
  EXPECT_THAT(words({"--master-port", "4000", "--max-restarts=0", "-n", "1", "a"}),
              ElementsAre("-n", "1", "-x", "MASTER_PORT=4000", "a"));
}

TEST(RunWords, AModuleIsRunByPython) {
  EXPECT_THAT(words({"-n", "2", "-m", "pkg.train", "-m", "x"}),
              ElementsAre("-n", "2", python_of_ranks(), "-m", "pkg.train", "-m", "x"));
}

TEST(RunWords, WhatHasNoMeaningHereIsAnsweredWithHorosWay) {
  EXPECT_THAT(refusal({"--max-restarts", "3", "a"}), HasSubstr("--min-np"));
  EXPECT_THAT(refusal({"--nnodes", "1:4", "a"}), HasSubstr("expected --nnodes 4; with --min-np"));
  EXPECT_THAT(refusal({"--nnodes=2", "--standalone", "a"}), HasSubstr("expected one of them"));
  EXPECT_THAT(refusal({"--mpi", "a"}), HasSubstr("mpirun -np 4"));
}

TEST(RunWords, AWrongOptionIsNamedWithTheNearest) {
  EXPECT_EQ(refusal({"--num-porc", "4", "a"}), "unknown option --num-porc; did you mean --num-proc?");
  EXPECT_EQ(refusal({"--nonsense-of-mine", "a"}), "unknown option --nonsense-of-mine; horo run --help names all");
  EXPECT_THAT(refusal({"--par", "a"}), testing::Not(HasSubstr("--part")));
  EXPECT_EQ(refusal({"-n"}), "-n: expected a value after it");
}

TEST(RunWords, TheProgramsArgumentsAreLeftAlone) {
  for (const Words& line : {Words{"-n", "1", "a", "--num_porc", "-h", "--"}, Words{"-v", "--", "--nproc_per_node"}}) {
    EXPECT_THAT(words(line), ElementsAreArray(line));
  }
}

TEST(RunWords, AFileHasOptionsAndTheCommandLineTakesPrecedence) {
  const std::string path = file_with("# a job\nnum-proc: 4\nverbose: true\noutput_dir: \"a b\"  # here\nnnodes: 1\n");
  EXPECT_THAT(words({"--config", path, "a"}),
              ElementsAre("--num-proc", "4", "--verbose", "--output-dir", "a b", "--nnodes", "1", "a"));
  EXPECT_THAT(words({"-n", "2", "--config=" + path, "--output-dir", "x", "a"}),
              ElementsAre("--verbose", "-n", "2", "--output-dir", "x", "--nnodes", "1", "a"));
}

TEST(RunWords, AFileMayRepeatVariablesAndTheCommandLineAddsToThem) {
  const std::string path = file_with("env: A=1\nenv: B=2\n");
  EXPECT_THAT(words({"--config", path, "a"}), ElementsAre("--env", "A=1", "--env", "B=2", "a"));
  EXPECT_THAT(words({"-x", "A=3", "--config", path, "a"}),  // the last value of a variable counts
              ElementsAre("--env", "A=1", "--env", "B=2", "-x", "A=3", "a"));
}

TEST(RunWords, AValueThatIsAttachedToItsLetterTakesPrecedenceToo) {
  const std::string path = file_with("num-proc: 4\nenv: A=1\n");
  EXPECT_THAT(words({"-n2", "--config", path, "a"}), ElementsAre("--env", "A=1", "-n", "2", "a"));
  EXPECT_THAT(words({"-vn2", "-xA=2", "--config", path, "a"}),
              ElementsAre("--env", "A=1", "-v", "-n", "2", "-x", "A=2", "a"));
  EXPECT_THAT(words({"-vn", "2", "-n=4", "-vhx", "a"}), ElementsAre("-v", "-n", "2", "-n", "=4", "-v", "-hx", "a"));
}

TEST(RunWords, AnotherKeyThatIsRepeatedIsRefusedWithBothLines) {
  for (const char* text : {"ranks: 2\nnum-proc: 4\n", "nnodes: 1\nnnodes: 1\n"}) {
    const std::string path = file_with(text);
    EXPECT_THAT(refusal({"--config", path, "-n", "1", "a"}),
                HasSubstr("line 2: " + std::string(text[0] == 'r' ? "num-proc" : "nnodes") +
                          ": expected it once; it is given before: --config " + path + ", line 1"));
  }
}

TEST(RunWords, AWrongFileIsNamedWithItsLine) {
  EXPECT_THAT(refusal({"--config", file_with("\nnum-prco: 4\n")}),
              HasSubstr("line 2: num-prco is no option of horo run; did you mean num-proc?"));
  EXPECT_THAT(refusal({"--config", file_with("verbose: maybe\n")}), HasSubstr("expected true or false, not \"maybe\""));
  for (const char* text : {"num-proc\n", "params:\n  x: 1\n", "- x\n", "num-proc:\n"}) {
    EXPECT_THAT(refusal({"--config", file_with(text)}), HasSubstr("as in: num-proc: 4")) << text;
  }
  EXPECT_THAT(refusal({"--config", "/no/such/file"}), HasSubstr("No such file"));
  EXPECT_THAT(refusal({"--config", testing::TempDir()}), HasSubstr("expected a file, not a folder"));
}

TEST(Lines, LongLinesAreFoldedAtSpaces) {
  const std::string word(70, 'x'), text = word + " " + word + " " + word + "\nshort\n";
  EXPECT_EQ(folded(text), word + " " + word + "\n    " + word + "\nshort\n");
  EXPECT_EQ(folded(std::string(500, 'x')), std::string(500, 'x'));
  EXPECT_EQ(folded("a\n\nb"), "a\n\nb");
}

TEST(Lines, TheMiddleIsCutOutOfALongLine) {
  const std::string cut = cut_lines("begin " + std::string(500, 'x') + " end\nnext\n");
  EXPECT_TRUE(cut.starts_with("begin x") && cut.ends_with("x end\nnext\n")) << cut;
  EXPECT_EQ(cut.find('\n'), kLongestLine);
  EXPECT_EQ(cut_lines("short\n"), "short\n");
}

}  // namespace
}  // namespace horo::tools
