// Ranks as processes, one of which is killed in the middle of a collective.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ring/socket.h"
#include "tests/ring/run_ranks.h"

namespace horo::test {
namespace {

class Process {
 public:
  explicit Process(std::vector<std::string> arguments) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("pipe2");
    output_ = Fd(ends[0]);
    const Fd theirs(ends[1]);
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, theirs.get(), STDOUT_FILENO);
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    const int error = ::posix_spawn(&pid_, argv[0], &actions, nullptr, argv.data(), environ);
    ::posix_spawn_file_actions_destroy(&actions);
    if (error != 0) throw std::runtime_error("posix_spawn");
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  ~Process() {
    kill();
    ::waitpid(pid_, nullptr, 0);
  }

  void kill() { ::kill(pid_, SIGKILL); }

  // The next line that it prints; what there is if it ends or the time is up.
  std::string line() {
    std::string text;
    char letter = 0;
    for (const TimePoint until = soon(); Clock::now() < until;) {
      pollfd ready{output_.get(), POLLIN, 0};
      if (::poll(&ready, 1, 100) == 1 && ::read(output_.get(), &letter, 1) != 1) break;
      if (ready.revents == 0) continue;
      if (letter == '\n') break;
      text += letter;
    }
    return text;
  }

 private:
  Fd output_;
  pid_t pid_ = 0;
};

void expect_that_all_name_a_killed_rank(const std::string& transport, const std::string& mib) {
  const std::string addr = free_address();
  std::vector<std::unique_ptr<Process>> ranks;
  for (int rank = 0; rank < 4; ++rank) {
    ranks.push_back(std::make_unique<Process>(
        std::vector<std::string>{HORO_RING_RANK, std::to_string(rank), "4", addr, transport, mib}));
  }
  for (const auto& rank : ranks) ASSERT_EQ(rank->line(), "ready");
  ranks[2]->kill();
  const TimePoint killed = Clock::now();
  for (const int survivor : {0, 1, 3}) {
    const std::string line = ranks[static_cast<std::size_t>(survivor)]->line();
    EXPECT_EQ(line.substr(0, 7), "lost 2 ") << "rank " << survivor << ": " << line;
  }
  EXPECT_LT(Clock::now() - killed, std::chrono::seconds(5));
}

TEST(Death, AKilledRankIsNamedByAllOthersInTime) {
  expect_that_all_name_a_killed_rank("tcp", "4");
}

TEST(Death, AKilledRankIsNamedByAllOthersInTimeWhileSharedMemoryMoves) {
  expect_that_all_name_a_killed_rank("shm", "64");
}

}  // namespace
}  // namespace horo::test
