#include "tools/horo/run/ending.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

#include "tools/horo/run/child.h"

namespace horo::tools {
namespace {

Child start_shell(const std::string& line) {
  Program program;
  program.arguments = {"/bin/sh", "-c", line};
  return start(program);
}

// The status when the process has ended, but is not reaped.
std::optional<int> status_at_end(const Child& child) {
  siginfo_t info{};
  EXPECT_EQ(::waitid(P_PID, static_cast<id_t>(child.pid), &info, WEXITED | WNOWAIT), 0);
  const std::optional<int> found = status_of_ending(child.pid);
  int status = 0;
  EXPECT_EQ(::waitpid(child.pid, &status, 0), child.pid);
  EXPECT_EQ(found, status);
  return found;
}

TEST(StatusOfEnding, AProcessThatRunsOrIsStoppedHasNone) {
  EXPECT_EQ(status_of_ending(::getpid()), std::nullopt);
  const Child child = start_shell("kill -STOP $$");
  int status = 0;
  ASSERT_EQ(::waitpid(child.pid, &status, WUNTRACED), child.pid);
  EXPECT_EQ(status_of_ending(child.pid), std::nullopt);
  ::kill(child.pid, SIGKILL);
  EXPECT_EQ(status_at_end(child), SIGKILL);
  EXPECT_EQ(status_of_ending(child.pid), std::nullopt) << "it does not exist any more";
}

TEST(StatusOfEnding, IsThatOfWaitpid) {
  EXPECT_EQ(status_at_end(start_shell("exit 3")), 3 << 8);
  EXPECT_EQ(status_at_end(start_shell("exit 0")), 0);
  EXPECT_EQ(status_at_end(start_shell("kill -TERM $$")), SIGTERM);
}

}  // namespace
}  // namespace horo::tools
