// Lines stay whole, and a reader that does not read blocks no writer.
#include "tools/horo/run/output.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>

#include "tools/horo/machine/descriptor.h"

namespace horo::tools {
namespace {

std::vector<std::string> lines_of(std::string_view text, std::size_t piece) {
  std::vector<std::string> lines;
  LineSplitter splitter([&](std::string_view line) { lines.emplace_back(line); });
  for (std::size_t at = 0; at < text.size(); at += piece) splitter.feed(text.substr(at, piece));
  splitter.finish();
  return lines;
}

TEST(LineSplitter, GivesTheSameLinesForAnyPieces) {
  for (const std::size_t piece : {1, 2, 3, 100}) {
    EXPECT_THAT(lines_of("a\nb\r\n10%\r20%\rend", piece),
                testing::ElementsAre("a\n", "b\r\n", "10%\r", "20%\r", "end\n"))
        << piece;
  }
}

TEST(LineSplitter, SplitsALineWithoutAnEnd) {
  const auto lines = lines_of(std::string(LineSplitter::kMaxLineBytes + 5, 'x'), 1000);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0].size(), LineSplitter::kMaxLineBytes + 1);
  EXPECT_EQ(lines[1], "xxxxx\n");
}

class WriterTest : public testing::Test {
 protected:
  WriterTest() : loop_(::ev_loop_new(EVFLAG_AUTO)) {
    std::array<int, 2> ends{};
    EXPECT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
    read_ = Descriptor(ends[0]);
    write_ = Descriptor(ends[1]);
    before_ = ::signal(SIGPIPE, SIG_IGN);
  }
  ~WriterTest() override {
    ::ev_loop_destroy(loop_);
    ::signal(SIGPIPE, before_);
  }

  std::size_t read_some() {
    std::array<char, 1 << 16> bytes{};
    const ssize_t got = ::read(read_.get(), bytes.data(), bytes.size());
    return got > 0 ? static_cast<std::size_t>(got) : 0;
  }

  struct ev_loop* const loop_;
  Descriptor read_, write_;
  sighandler_t before_ = nullptr;
};

TEST_F(WriterTest, QueuesUnreadDataAndReportsThatItIsFull) {
  int changes = 0;
  {
    StreamWriter writer(loop_, write_.get(), [&] { ++changes; });
    const std::string line(1023, 'x');
    std::size_t written = 0;
    for (; !writer.is_full(); written += line.size()) writer.write(line);
    EXPECT_GT(written, StreamWriter::kFullBytes);
    std::size_t got = 0;
    while (!writer.is_empty()) {
      got += read_some();
      ::ev_run(loop_, EVRUN_NOWAIT);
    }
    write_.close();
    for (std::size_t more = read_some(); more > 0; more = read_some()) got += more;
    EXPECT_EQ(got, written);
  }
  EXPECT_GE(changes, 2);  // no longer full; empty
}

TEST_F(WriterTest, ReportsThatTheReaderIsGone) {
  int changes = 0;
  StreamWriter writer(loop_, write_.get(), [&] { ++changes; });
  read_.close();
  writer.write("lost\n");
  EXPECT_EQ(writer.error(), EPIPE);
  EXPECT_TRUE(writer.is_empty());
  EXPECT_EQ(changes, 1);
}

}  // namespace
}  // namespace horo::tools
