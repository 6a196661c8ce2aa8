// pidfd_open takes a pid, which another process may have by now. The start time, read after the descriptor is open,
// tells the two processes apart.
#include "ring/os/process.h"

#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <fstream>
#include <iterator>

#include "horo/base/say.h"

namespace horo {
namespace {

constexpr int kStartField = 22;     // of /proc/PID/stat, counted from 1
constexpr int kAfterNameField = 3;  // the first one behind the name, which may contain any character

std::string pid_space() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string boot;
  char name[64] = {};
  const ssize_t size = ::readlink("/proc/self/ns/pid", name, sizeof(name));
  if (!std::getline(file, boot) || size <= 0) return "";
  return boot + "/" + std::string(name, static_cast<std::size_t>(size));
}

// A descriptor that is always readable.
Fd ended() {
  return Fd(::eventfd(1, EFD_NONBLOCK | EFD_CLOEXEC));
}

Fd watch(const ProcessIdentity& mark) {
  Fd fd(static_cast<int>(::syscall(SYS_pidfd_open, static_cast<pid_t>(mark.pid), 0)));
  if (!fd.is_open()) return errno == ESRCH ? ended() : Fd();
  return process_start(mark.pid).value_or(mark.started) == mark.started ? std::move(fd) : ended();
}

}  // namespace

std::optional<std::uint64_t> process_start(std::int64_t pid) {
  std::ifstream file(say("/proc/", pid, "/stat"));
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  std::size_t at = text.rfind(") ");
  if (at == std::string::npos) return std::nullopt;
  at += 2;
  for (int field = kAfterNameField; field < kStartField; ++field) {
    at = text.find(' ', at);
    if (at == std::string::npos) return std::nullopt;
    ++at;
  }
  std::uint64_t started = 0;
  const auto [end, error] = std::from_chars(text.data() + at, text.data() + text.size(), started);
  return error == std::errc() ? std::optional(started) : std::nullopt;
}

ProcessIdentity this_process() {
  ProcessIdentity mark;
  char host[256] = {};
  if (::gethostname(host, sizeof(host) - 1) == 0) mark.host = host;
  mark.space = pid_space();
  mark.pid = ::getpid();
  mark.started = process_start(mark.pid).value_or(0);
  return mark;
}

std::string say_ended(int seen_by) {
  return say("its process ended without a goodbye (seen by rank ", seen_by, ")");
}

std::vector<Watched> watch_processes(std::span<const ProcessIdentity> marks) {
  const ProcessIdentity mine = this_process();
  std::vector<Watched> watched;
  if (mine.space.empty() || mine.started == 0) return watched;
  for (std::size_t rank = 0; rank < marks.size(); ++rank) {
    if (marks[rank].space != mine.space || marks[rank].pid == mine.pid || marks[rank].pid <= 0) continue;
    Fd fd = watch(marks[rank]);
    if (fd.is_open()) watched.push_back({static_cast<int>(rank), std::move(fd)});
  }
  return watched;
}

}  // namespace horo
