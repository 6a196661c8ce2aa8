// fork and exec, with a close-on-exec pipe between them: it ends silently when exec worked, and else carries errno.
#include "tools/horo/child.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>

namespace horo {
namespace {

struct Pipe {
  Fd read;
  Fd write;
};

Pipe make_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw std::system_error(errno, std::generic_category(), "pipe2");
  return {Fd(ends[0]), Fd(ends[1])};
}

std::vector<char*> pointers_to(const std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (const std::string& text : texts) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

// All signals wait while a child exists that still has our handlers.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    ::sigfillset(&all);
    ::sigprocmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { ::sigprocmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

struct Ends {
  pid_t parent;
  int output;
  int errors;
  int failure;
  int inherited;
};

void reset_signals() {
  for (int signal = 1; signal < NSIG; ++signal) ::signal(signal, SIG_DFL);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
}

bool prepare(const Ends& ends) {
  const int nothing = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (nothing < 0 || ::setpgid(0, 0) != 0 || ::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) return false;
  if (::getppid() != ends.parent) return false;  // it died before we asked to be told
  if (::dup2(nothing, 0) < 0 || ::dup2(ends.output, 1) < 0 || ::dup2(ends.errors, 2) < 0) return false;
  return ends.inherited < 0 || ::fcntl(ends.inherited, F_SETFD, 0) == 0;
}

[[noreturn]] void become(char* const* arguments, char* const* environment, const Ends& ends) {
  reset_signals();
  if (prepare(ends)) ::execvpe(arguments[0], arguments, environment);
  const int error = errno;
  [[maybe_unused]] const ssize_t wrote = ::write(ends.failure, &error, sizeof(error));
  ::_exit(127);
}

// 0: exec worked.
int exec_error(int fd) {
  int error = 0;
  ssize_t got = 0;
  do {
    got = ::read(fd, &error, sizeof(error));
  } while (got < 0 && errno == EINTR);
  return got == sizeof(error) ? error : 0;
}

}  // namespace

Child start(const Program& program) {
  const std::vector<char*> arguments = pointers_to(program.arguments);
  const std::vector<char*> environment = pointers_to(program.environment);
  Pipe output = make_pipe(), errors = make_pipe(), failure = make_pipe();
  const Ends ends{::getpid(), output.write.get(), errors.write.get(), failure.write.get(), program.inherited_fd};
  pid_t pid = 0;
  {
    const SignalsBlocked blocked;
    pid = ::fork();
    if (pid == 0) become(arguments.data(), environment.data(), ends);
  }
  if (pid < 0) throw std::system_error(errno, std::generic_category(), "fork");
  { const Fd closed = std::move(failure.write); }
  if (const int error = exec_error(failure.read.get()); error != 0) {
    const bool missing = error == ENOENT || error == ENOTDIR;
    throw StartFailed(missing ? 127 : 126, "cannot start \"" + program.arguments[0] + "\": " + std::strerror(error));
  }
  ::fcntl(output.read.get(), F_SETFL, O_NONBLOCK);
  ::fcntl(errors.read.get(), F_SETFL, O_NONBLOCK);
  return {pid, std::move(output.read), std::move(errors.read)};
}

void signal_group(pid_t group, int signal) noexcept {
  ::kill(-group, signal);
}

}  // namespace horo
