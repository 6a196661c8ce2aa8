#include "horo/base/log.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>

namespace horo {
namespace {

// The level is read once in a process, so each of these runs in one of its own.
class LogDeathTest : public testing::Test {
 protected:
  LogDeathTest() { testing::FLAGS_gtest_death_test_style = "threadsafe"; }
};

[[noreturn]] void say(const char* level) {
  if (level != nullptr) ::setenv("HORO_LOG_LEVEL", level, 1);
  log_warning("before the rank is known");
  set_log_rank(2);
  log_info("an {info}");
  log_error("an {error}");
  ::_exit(0);
}

TEST_F(LogDeathTest, LinesShowTimeRankAndLevel) {
  EXPECT_EXIT(say(nullptr), testing::ExitedWithCode(0),
              "\\[horo [0-9]+:[0-9]+:[0-9]+.[0-9]+\\] warning: before the rank is known\n"
              "\\[horo [0-9:.]+ rank 2\\] error: an \\{error\\}");
}

TEST_F(LogDeathTest, TheEnvironmentSetsTheLevel) {
  EXPECT_EXIT(say("info"), testing::ExitedWithCode(0), "rank 2\\] info: an \\{info\\}");
}

TEST_F(LogDeathTest, AnUnknownLevelIsNamedAndIgnored) {
  EXPECT_EXIT(say("loud"), testing::ExitedWithCode(0), "HORO_LOG_LEVEL=\"loud\": expected trace");
}

TEST_F(LogDeathTest, OffIsSilent) {
  EXPECT_EXIT(say("off"), testing::ExitedWithCode(0), "^$");
}

}  // namespace
}  // namespace horo
