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

// What survivors say, by rank, after rank 2 was killed.
std::vector<std::string> last_words_after_a_kill(const std::string& transport, const std::string& mib,
                                                 std::chrono::seconds limit) {
  const std::string addr = free_address();
  std::vector<std::unique_ptr<Process>> ranks;
  for (int rank = 0; rank < 4; ++rank) {
    ranks.push_back(std::make_unique<Process>(
        std::vector<std::string>{HORO_RING_RANK, std::to_string(rank), "4", addr, transport, mib}));
  }
  for (const auto& rank : ranks) EXPECT_EQ(rank->line(), "ready");
  ranks[2]->kill();
  const TimePoint killed = Clock::now();
  std::vector<std::string> lines;
  for (const std::size_t survivor : {0ul, 1ul, 3ul}) lines.push_back(ranks[survivor]->line());
  EXPECT_LT(Clock::now() - killed, limit);
  return lines;
}

TEST(Death, AKilledRankIsNamedByAllOthersInTime) {
  for (const std::string& line : last_words_after_a_kill("tcp", "4", std::chrono::seconds(5)))
    EXPECT_EQ(line.substr(0, 7), "lost 2 ") << line;
}

// Nobody judges here whose end was the first: a rank that needs longer to tell why it ends than others wait for it may
// be named by them.
TEST(Death, ARankKilledWhileSharedMemoryMovesEndsTheWaitsOfAllOthers) {
  for (const std::string& line : last_words_after_a_kill("shm", "64", std::chrono::seconds(15)))
    EXPECT_EQ(line.substr(0, 5), "lost ") << line;
}

}  // namespace
}  // namespace horo::test
