// Watching the end of other processes.

#include "ring/os/process.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

namespace horo::test {
namespace {

constexpr int kPatienceMs = 20'000;

// A process that does nothing until it is killed.
class Sleeper {
 public:
  Sleeper() {
    std::string program = "/bin/sleep", seconds = "1000";
    char* argv[] = {program.data(), seconds.data(), nullptr};
    if (::posix_spawn(&pid_, argv[0], nullptr, nullptr, argv, environ) != 0) throw std::runtime_error("posix_spawn");
  }
  Sleeper(const Sleeper&) = delete;
  Sleeper& operator=(const Sleeper&) = delete;
  ~Sleeper() { end(); }

  void kill() { ::kill(pid_, SIGKILL); }
  void end() {
    if (pid_ <= 0) return;  // pid 0 would be the whole process group
    kill();
    ::waitpid(std::exchange(pid_, 0), nullptr, 0);
  }
  ProcessIdentity mark() const { return mark_of(pid_); }

 private:
  // As this_process() in that process, with the start time from /proc.
  static ProcessIdentity mark_of(pid_t pid) {
    ProcessIdentity mark = this_process();
    mark.pid = pid;
    mark.started = process_start(pid).value();
    return mark;
  }
  pid_t pid_ = 0;
};

bool has_ended(const Watched& watched, int wait_ms) {
  pollfd poll{watched.fd.get(), POLLIN, 0};
  return ::poll(&poll, 1, wait_ms) == 1;
}

TEST(Process, TheEndOfAProcessIsSeen) {
  Sleeper sleeper;
  const std::vector<ProcessIdentity> marks{this_process(), sleeper.mark()};
  const auto watched = watch_processes(marks);
  ASSERT_EQ(watched.size(), 1u) << "the other process, not this one";
  EXPECT_EQ(watched[0].rank, 1);
  EXPECT_FALSE(has_ended(watched[0], 0));
  sleeper.kill();
  EXPECT_TRUE(has_ended(watched[0], kPatienceMs));
}

TEST(Process, OneThatHasEndedAlreadyIsSeenAtOnce) {
  Sleeper sleeper;
  const std::vector<ProcessIdentity> marks{sleeper.mark()};
  sleeper.end();
  const auto watched = watch_processes(marks);
  ASSERT_EQ(watched.size(), 1u);
  EXPECT_TRUE(has_ended(watched[0], 0));
}

TEST(Process, AnotherProcessWithTheSamePidIsNotTakenForIt) {
  Sleeper sleeper;
  std::vector<ProcessIdentity> marks{sleeper.mark()};
  --marks[0].started;
  const auto watched = watch_processes(marks);
  ASSERT_EQ(watched.size(), 1u);
  EXPECT_TRUE(has_ended(watched[0], 0));
}

TEST(Process, ProcessesOfOtherHostsAndNamespacesAreNotWatched) {
  Sleeper sleeper;
  std::vector<ProcessIdentity> marks{sleeper.mark(), ProcessIdentity{}};
  marks[0].space = "another boot/pid:[1]";
  EXPECT_TRUE(watch_processes(marks).empty());
}

}  // namespace
}  // namespace horo::test
