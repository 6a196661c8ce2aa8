// fork and exec. A close-on-exec pipe reports a failure: it ends without data after a successful exec, else it carries
// the stage and errno.
#include "tools/horo/run/child.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "tools/horo/run/remedies.h"

namespace horo::tools {
namespace {

struct Pipe {
  Descriptor read;
  Descriptor write;
};

Pipe make_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw std::system_error(errno, std::generic_category(), "pipe2");
  return {Descriptor(ends[0]), Descriptor(ends[1])};
}

std::vector<char*> pointers_to(const std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (const std::string& text : texts) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

// Blocks all signals while the child still has the handlers of this process.
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
};

enum class Stage { kPrepare, kBind, kFolder, kExec };

// Sent by the child if it cannot execute the program.
struct StartReport {
  Stage stage = Stage::kPrepare;
  int error = 0;
};

void reset_signals() {
  for (int signal = 1; signal < NSIG; ++signal) ::signal(signal, SIG_DFL);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
}

bool bind_to(const std::vector<int>& cores) {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  for (const int core : cores) CPU_SET(static_cast<std::size_t>(core), &mask);
  return cores.empty() || ::sched_setaffinity(0, sizeof(mask), &mask) == 0;
}

bool prepare(const Program& program, const Ends& ends) {
  const int nothing = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (nothing < 0 || ::setpgid(0, 0) != 0 || ::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) return false;
  if (::getppid() != ends.parent) return false;  // the parent died before PR_SET_PDEATHSIG was set
  if (::dup2(program.input < 0 ? nothing : program.input, 0) < 0 || ::dup2(ends.output, 1) < 0 ||
      ::dup2(ends.errors, 2) < 0)
    return false;
  for (const int fd : program.inherited_fds) {
    if (::fcntl(fd, F_SETFD, 0) != 0) return false;
  }
  if (program.process_word != nullptr) program.process_word->store(::getpid(), std::memory_order_release);
  return true;
}

struct Pointers {
  std::vector<char*> arguments, environment;
};

[[noreturn]] void report_failure(StartReport report, const Ends& ends) {
  report.error = errno;
  [[maybe_unused]] const ssize_t wrote = ::write(ends.failure, &report, sizeof(report));
  ::_exit(127);
}

[[noreturn]] void exec_program(const Program& program, const Pointers& pointers, const Ends& ends) {
  reset_signals();
  StartReport report;
  if (prepare(program, ends)) {
    report.stage = Stage::kBind;
    if (!bind_to(program.cores) && program.must_bind) report_failure(report, ends);
    report.stage = Stage::kFolder;
    if (program.folder.empty() || ::chdir(program.folder.c_str()) == 0) {
      report.stage = Stage::kExec;
      ::execvpe(pointers.arguments[0], pointers.arguments.data(), pointers.environment.data());
    }
  }
  report_failure(report, ends);
}

// Blocks until the child has called exec or failed. error 0: exec succeeded.
StartReport read_report(int fd) {
  StartReport report;
  ssize_t got = 0;
  do {
    got = ::read(fd, &report, sizeof(report));
  } while (got < 0 && errno == EINTR);
  return got == sizeof(report) ? report : StartReport{};
}

// ": /no/such/python", of "#!/no/such/python -u".
std::string interpreter_text(const std::filesystem::path& script) {
  std::ifstream file(script);
  std::string line;
  std::getline(file, line);
  const bool is_script = line.starts_with("#!");
  return is_script ? ": " + line.substr(2, 100) : " (or a library that it needs)";
}

[[noreturn]] void throw_failed(const Program& program, const StartReport& report) {
  const std::string& name = program.arguments[0];
  const std::string why = std::strerror(report.error);
  if (report.stage == Stage::kFolder) throw StartFailed(2, "--cwd " + program.folder + ": " + why);
  if (report.stage == Stage::kBind) {
    throw StartFailed(
        126, "--bind-to core: sched_setaffinity: " + why + "; a sandbox may refuse it: expected --bind-to none");
  }
  const std::string text = "cannot start \"" + name + "\": " + why;
  if (report.stage == Stage::kPrepare) {
    const std::system_error failed(report.error, std::generic_category(), "cannot start \"" + name + "\"");
    throw StartFailed(126, text_with_remedy(failed));
  }
  const std::filesystem::path path =
      name.find('/') == std::string::npos ? "" : std::filesystem::path(program.folder) / name;
  std::error_code none;
  if (std::filesystem::is_directory(path, none))
    throw StartFailed(126, "cannot start \"" + name + "\": it is a folder");
  if (report.error == EACCES) {
    throw StartFailed(
        126, text + ". Is it executable (chmod +x), or does it need a program to run it, as in: python " + name + "?");
  }
  if (report.error != ENOENT && report.error != ENOTDIR) throw StartFailed(126, text);
  if (std::filesystem::exists(path, none)) {
    throw StartFailed(127, "cannot start \"" + name + "\": there is no interpreter of the name in its first line" +
                               interpreter_text(path));
  }
  throw StartFailed(127, text + (path.empty() ? ". Expected a program in one of the folders of PATH" : "") +
                             (path.empty() && name.ends_with(".py") ? ", or a script in the working folder" : ""));
}

}  // namespace

Child start(const Program& program) {
  const Pointers pointers{pointers_to(program.arguments), pointers_to(program.environment)};
  Pipe output = make_pipe(), errors = make_pipe(), failure = make_pipe();
  const Ends ends{::getpid(), output.write.get(), errors.write.get(), failure.write.get()};
  pid_t pid = 0;
  {
    const SignalsBlocked blocked;
    pid = ::fork();
    if (pid == 0) exec_program(program, pointers, ends);
  }
  if (pid < 0) throw std::system_error(errno, std::generic_category(), "fork");
  failure.write.close();
  if (const StartReport report = read_report(failure.read.get()); report.error != 0) throw_failed(program, report);
  ::fcntl(output.read.get(), F_SETFL, O_NONBLOCK);
  ::fcntl(errors.read.get(), F_SETFL, O_NONBLOCK);
  return {pid, std::move(output.read), std::move(errors.read)};
}

void signal_group(pid_t group, int signal) noexcept {
  ::kill(-group, signal);
}

}  // namespace horo::tools
