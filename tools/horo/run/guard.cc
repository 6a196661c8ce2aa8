// The guard is the parent of the ranks and the subreaper of their orphans, so its descendants are all processes of the
// job. It detects the death of the front process (the caller of run_guarded) by the end of a pipe and kills its
// descendants. The front process is a subreaper, too: if the guard dies, it kills all descendants; the ranks die with
// the guard (PR_SET_PDEATHSIG). The guard leads its own session, so signals to the process group or terminal of the
// front process reach the guard only if the front process forwards them.
#include "tools/horo/run/guard.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <iostream>
#include <map>
#include <memory>
#include <sstream>
#include <system_error>
#include <vector>

#include "horo/base/run_table.h"
#include "horo/base/time.h"
#include "ring/os/backoff.h"
#include "tools/horo/machine/descriptor.h"
#include "tools/horo/run/lines.h"
#include "tools/horo/run/remedies.h"

namespace horo::tools {
namespace {

constexpr std::array kForwarded = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};
constexpr std::chrono::seconds kKillTime{10};

// Blocks SIGCHLD and the forwarded signals; next() takes one. Ignored signals (nohup) stay ignored.
class WaitedSignals {
 public:
  WaitedSignals() {
    ::sigemptyset(&set_);
    ::sigaddset(&set_, SIGCHLD);
    before_child_ = ::signal(SIGCHLD, SIG_DFL);
    for (const int signal : kForwarded) {
      struct sigaction action {};
      if (::sigaction(signal, nullptr, &action) == 0 && action.sa_handler != SIG_IGN) ::sigaddset(&set_, signal);
    }
    ::sigprocmask(SIG_BLOCK, &set_, &before_);
  }
  ~WaitedSignals() {
    ::sigprocmask(SIG_SETMASK, &before_, nullptr);
    ::signal(SIGCHLD, before_child_);
  }
  WaitedSignals(const WaitedSignals&) = delete;
  WaitedSignals& operator=(const WaitedSignals&) = delete;

  int next() const {
    int signal = 0;
    do {
      signal = ::sigwaitinfo(&set_, nullptr);
    } while (signal < 0);
    return signal;
  }

 private:
  sigset_t set_, before_;
  sighandler_t before_child_ = nullptr;
};

struct Process {
  pid_t pid = 0, parent = 0;
  bool is_alive = false;  // not a zombie
};

// Fields 1, 3 and 4 of "pid (any name) state parent ...".
Process read_process(const std::string& pid) {
  std::ifstream file("/proc/" + pid + "/stat");
  std::string text;
  std::getline(file, text, '\0');
  const std::size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return {};
  std::istringstream fields(text.substr(name_end + 1));
  char state = 0;
  Process process;
  fields >> state >> process.parent;
  process.pid = static_cast<pid_t>(std::strtol(pid.c_str(), nullptr, 10));
  process.is_alive = state != 'Z' && state != 'X';
  return process;
}

std::vector<Process> all_processes() {
  std::vector<Process> processes;
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir("/proc"), ::closedir);
  if (folder == nullptr) return processes;
  while (const dirent* entry = ::readdir(folder.get())) {
    if (entry->d_name[0] < '1' || entry->d_name[0] > '9') continue;
    if (const Process process = read_process(entry->d_name); process.pid > 0) processes.push_back(process);
  }
  return processes;
}

std::vector<pid_t> living_descendants(pid_t ancestor) {
  std::multimap<pid_t, Process> children;
  for (const Process& process : all_processes()) children.emplace(process.parent, process);
  std::vector<pid_t> living, open{ancestor};
  while (!open.empty()) {
    const auto [begin, end] = children.equal_range(open.back());
    open.pop_back();
    for (auto child = begin; child != end; ++child) {
      open.push_back(child->second.pid);
      if (child->second.is_alive) living.push_back(child->second.pid);
    }
  }
  return living;
}

void reap() noexcept {
  while (::waitpid(-1, nullptr, WNOHANG) > 0) {
  }
}

[[noreturn]] void guard(const std::string& title, int lifeline_fd, const std::function<int(int)>& work) {
  ::setsid();
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  ::prctl(PR_SET_NAME, kGuardName);
  int code = 1;
  try {
    code = work(lifeline_fd);
  } catch (const std::exception& error) {
    std::cerr << folded(title + ": " + text_with_remedy(error) + "\n");
  }
  kill_descendants(title);
  ::_exit(code);
}

// Blocks until the guard has ended and returns its status. Reaps orphans that end before it.
int forward_signals_to(pid_t guard, const WaitedSignals& signals) {
  while (true) {
    const int signal = signals.next();
    if (signal != SIGCHLD) {
      ::kill(guard, signal);
      continue;
    }
    int status = 0;
    for (pid_t pid = 0; (pid = ::waitpid(-1, &status, WNOHANG)) > 0;) {
      if (pid == guard) return status;
    }
  }
}

}  // namespace

void kill_descendants(const std::string& title) noexcept {
  const TimePoint until = Clock::now() + kKillTime;
  std::chrono::milliseconds wait{1};
  while (true) {
    reap();
    const std::vector<pid_t> living = living_descendants(::getpid());
    if (living.empty()) return reap();
    for (const pid_t pid : living) ::kill(pid, SIGKILL);
    if (Clock::now() >= until) {
      std::cerr << title + ": process " + std::to_string(living.front()) +
                       " cannot be killed: it may be blocked in a device driver\n";
      return;
    }
    back_off(wait);
    wait = std::min(wait * 2, std::chrono::milliseconds(50));
  }
}

int run_guarded(const std::string& title, const std::function<int(int lifeline_fd)>& work) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw std::system_error(errno, std::generic_category(), "pipe2");
  Descriptor lifeline(ends[0]), held(ends[1]);
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  const WaitedSignals signals;
  const pid_t pid = ::fork();
  if (pid < 0) throw std::system_error(errno, std::generic_category(), "fork");
  if (pid == 0) {
    held.close();
    guard(title, lifeline.get(), work);
  }
  lifeline.close();
  const int status = forward_signals_to(pid, signals);
  kill_descendants(title);
  if (WIFEXITED(status)) return WEXITSTATUS(status);
  std::cerr << title + ": its guard process was ended by signal " + std::to_string(WTERMSIG(status)) +
                   "; the whole job was killed\n";
  return 128 + WTERMSIG(status);
}

}  // namespace horo::tools
