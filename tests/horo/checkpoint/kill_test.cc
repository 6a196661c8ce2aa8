// A process that is killed while it saves: whatever the instant, the newest checkpoint that it has published is there.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <random>

#include "horo/checkpoint/catalog.h"
#include "ring/os/backoff.h"
#include "tests/effort.h"
#include "tests/horo/checkpoint/states.h"
#include "tests/horo/worlds.h"

extern char** environ;

namespace horo::checkpoint {
namespace {

// checkpoint_writer, and what it has printed. variables: of its environment.
class Writer {
 public:
  Writer(const std::string& folder, std::uint64_t first, std::uint64_t last, std::vector<std::string> variables = {}) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("pipe2");
    output_ = ends[0];
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    const std::string begin = std::to_string(first), end = std::to_string(last);
    std::vector<std::string> words{HORO_WRITER, folder, begin, end};
    std::vector<char*> argv, envp;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    for (char** one = environ; *one != nullptr; ++one) envp.push_back(*one);
    for (std::string& one : variables) envp.push_back(one.data());
    envp.push_back(nullptr);
    if (::posix_spawn(&pid_, HORO_WRITER, &actions, nullptr, argv.data(), envp.data()) != 0)
      throw std::runtime_error("posix_spawn");
    ::posix_spawn_file_actions_destroy(&actions);
    ::close(ends[1]);
  }
  ~Writer() {
    kill();
    if (!is_reaped_) ::waitpid(pid_, nullptr, 0);
    ::close(output_);
  }
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  void kill() {
    if (!is_reaped_) ::kill(pid_, SIGKILL);
  }
  // Waits for its end. The last step that it has printed; 0: none.
  std::uint64_t last_step() {
    std::string text;
    char part[256];
    for (ssize_t got = 0; (got = ::read(output_, part, sizeof(part))) > 0;)
      text.append(part, static_cast<std::size_t>(got));
    ::waitpid(pid_, &status_, 0);
    is_reaped_ = true;
    if (text.empty()) return 0;
    text.pop_back();
    return std::strtoull(text.substr(text.rfind('\n') + 1).c_str(), nullptr, 10);
  }
  bool was_killed() const { return WIFSIGNALED(status_); }
  bool has_succeeded() const { return WIFEXITED(status_) && WEXITSTATUS(status_) == 0; }
  // Blocks until it has printed something.
  void wait_for_output() const {
    char first = 0;
    if (::read(output_, &first, 1) != 1) throw std::runtime_error("the writer has printed nothing");
  }

 private:
  pid_t pid_ = 0;
  int output_ = -1, status_ = 0;
  bool is_reaped_ = false;
};

// The greatest step of those that are there. Each of them is whole.
std::uint64_t newest_step_in(const std::string& folder) {
  std::uint64_t newest = 0;
  for (const Listed& one : list(folder)) {
    EXPECT_EQ(one.error, "");
    EXPECT_EQ(thrown_by([&] {
                Checkpoint checkpoint(one.path);
                verify(checkpoint);
              }),
              "");
    newest = std::max(newest, one.step.value_or(0));
  }
  return newest;
}

class KillsAtCalls : public testing::TestWithParam<bool> {};  // names can be exchanged
INSTANTIATE_TEST_SUITE_P(Kernels, KillsAtCalls, testing::Values(true, false),
                         [](const auto& info) { return info.param ? "ThatExchangeNames" : "ThatDoNot"; });

TEST_P(KillsAtCalls, LeaveTheNewestCheckpointWhole) {
  const TemporaryFolder folder(true);
  std::uint64_t step = 1;
  int kills = 0;
  for (int call = 1;; ++call) {
    std::vector<std::string> variables{"TEST_KILL_AT=" + std::to_string(call)};
    if (!GetParam()) variables.push_back("TEST_OLD_KERNEL=1");
    Writer writer(folder.path().string(), step, step + 1, variables);
    const std::uint64_t last = writer.last_step();
    ASSERT_GE(last, step);
    if (!GetParam()) Saver().lock(folder.path().string());  // as a job does before it looks for checkpoints
    EXPECT_GE(newest_step_in(folder.path().string()), last) << "call " << call;
    step = last + 1;
    if (!writer.was_killed()) {
      EXPECT_TRUE(writer.has_succeeded());
      break;
    }
    ++kills;
  }
  EXPECT_GT(kills, 20);
}

TEST(Kills, AtAnyInstantLeaveTheNewestCheckpointWhole) {
  const TemporaryFolder folder(true);
  std::mt19937 random(3);
  std::uint64_t step = 1;
  const char* const times = std::getenv("TEST_EFFORT");
  const int runs = test::effort(25) * (times == nullptr ? 1 : std::atoi(times));
  for (int i = 0; i < runs; ++i) {
    Writer writer(folder.path().string(), step, step + 100'000);
    writer.wait_for_output();
    back_off(std::chrono::milliseconds(random() % 30));
    writer.kill();
    const std::uint64_t last = std::max(writer.last_step(), step);
    EXPECT_TRUE(writer.was_killed());
    const std::uint64_t newest = newest_step_in(folder.path().string());
    EXPECT_GE(newest, last);
    step = newest + 1;
  }
}

}  // namespace
}  // namespace horo::checkpoint
