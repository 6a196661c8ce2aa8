#include "tools/horo/run/host_command.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstdint>
#include <cstring>
#include <iostream>
#include <optional>
#include <stdexcept>
#include <system_error>
#include <vector>

#include "horo/base/version.h"
#include "tools/horo/run/host_start.h"
#include "tools/horo/run/verdict.h"

namespace horo::tools {
namespace {

constexpr std::array kPassedOn = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};

void enter(const HostStart& start) {
  if (::chdir(start.folder.c_str()) != 0) {
    throw std::invalid_argument("the working folder " + start.folder + ": " + std::strerror(errno));
  }
  for (const std::string& variable : start.variables) {
    const std::size_t equals = variable.find('=');
    if (equals == std::string::npos) throw std::invalid_argument("a variable without a value");
    ::setenv(variable.substr(0, equals).c_str(), variable.c_str() + equals + 1, 1);
  }
  ::setenv("PWD", start.folder.c_str(), 1);
}

// The bytes of the launcher. A network that is cut ends no connection: the silence shows it.
class Channel {
 public:
  explicit Channel(std::chrono::milliseconds silence) : silence_(silence) {}

  int left_ms() const {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(heard_ + silence_ - Clock::now());
    return static_cast<int>(std::clamp<std::int64_t>(left.count() + 1, 0, INT_MAX));
  }
  // The next byte, if the channel has one; -1 at its end.
  int read() {
    unsigned char byte = 0;
    ssize_t got = 0;
    do {
      got = ::read(0, &byte, 1);
    } while (got < 0 && errno == EINTR);
    heard_ = Clock::now();
    return got == 1 ? byte : -1;
  }
  // Blocks until kGo. False: the launcher is lost.
  bool await_go() {
    pollfd wait{0, POLLIN, 0};
    while (true) {
      const int ready = ::poll(&wait, 1, left_ms());
      if (ready < 0 && errno == EINTR) continue;
      const int byte = ready > 0 ? read() : -1;
      if (byte != kAlive) return byte == kGo;
    }
  }

 private:
  using Clock = std::chrono::steady_clock;
  const std::chrono::milliseconds silence_;
  Clock::time_point heard_ = Clock::now();
};

[[noreturn]] void exec_run(const HostStart& start, int key_fd, pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);
  const int nothing = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  ::dup2(nothing, 0);
  ::fcntl(key_fd, F_SETFD, 0);
  ::setenv("HORO_KEY_FD", std::to_string(key_fd).c_str(), 1);
  std::string self = "horo";
  std::vector<char*> arguments{self.data()};
  for (const std::string& word : start.horo_run) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  ::execv("/proc/self/exe", arguments.data());
  ::_exit(127);
}

// Passes on signals until the process has ended. Returns its code; nothing if the launcher was lost before.
std::optional<int> follow_run(pid_t pid, Channel& channel) {
  const Descriptor process(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  std::array<pollfd, 2> waits{{{process.get(), POLLIN, 0}, {0, POLLIN, 0}}};
  bool is_lost = false;
  while (true) {
    const int ready = ::poll(waits.data(), waits.size(), is_lost ? -1 : channel.left_ms());
    if (ready < 0 && errno != EINTR) throw std::system_error(errno, std::generic_category(), "poll");
    int status = 0;
    if (::waitpid(pid, &status, WNOHANG) == pid) return is_lost ? std::nullopt : std::optional(code_of(status));
    if (is_lost || ready < 0 || (ready > 0 && waits[1].revents == 0)) continue;
    const int byte = ready > 0 ? channel.read() : -1;
    if (byte < 0) {
      is_lost = true;
      waits[1].fd = -1;
      ::kill(pid, SIGKILL);
    }
    if (std::find(kPassedOn.begin(), kPassedOn.end(), byte) != kPassedOn.end()) ::kill(pid, byte);
  }
}

}  // namespace

int run_host() {
  const HostStart start = read_host_start(0);
  enter(start);
  const Descriptor key = make_key_file(start.key);
  std::cout << kReadyLine << kVersion << std::endl;
  Channel channel{std::chrono::milliseconds(start.silence_ms)};
  if (!channel.await_go()) return 1;
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) throw std::system_error(errno, std::generic_category(), "fork");
  if (pid == 0) exec_run(start, key.get(), parent);
  const std::optional<int> code = follow_run(pid, channel);
  if (!code) return 1;  // a line to a launcher that does not read could block
  // The output may have ended inside of a line.
  std::cout << "\n" << kEndLine << *code << std::endl;
  return *code;
}

}  // namespace horo::tools
