#include "tests/horo/kill_points.h"

#include <poll.h>
#include <signal.h>
#include <sys/time.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <deque>
#include <sstream>
#include <string>

#include "horo/base/fail_point.h"

namespace horo {

void (*at_fail_point)(const char* name) noexcept = nullptr;

namespace {

struct Kill {
  std::string point;
  long count = 0;
  long later_us = 0;
  int signal = 0;
  std::string line;  // to print
  std::atomic<long> reached = 0;
  std::atomic<bool> is_timed = false;
};

// Of this process. A library's constructor may call read_kills() before this file's variables are made.
std::deque<Kill>& kills() {
  static std::deque<Kill> all;
  return all;
}

int stop_ms = 0;

// By a child, as this process stands still. Its pipes are closed, so that no reader waits for it.
void continue_later() noexcept {
  const pid_t stopped = ::getpid();
  if (::fork() != 0) return;
  ::close(STDOUT_FILENO);
  ::close(STDERR_FILENO);
  ::poll(nullptr, 0, stop_ms);
  ::kill(stopped, SIGCONT);
  ::_exit(0);
}

void fire(const Kill& one) noexcept {
  [[maybe_unused]] const auto written = ::write(STDOUT_FILENO, one.line.data(), one.line.size());
  if (one.signal == SIGSTOP && stop_ms > 0) continue_later();
  ::kill(::getpid(), one.signal);
}

void fire_in_time(int) {
  for (const Kill& one : kills()) {
    if (one.is_timed) fire(one);
  }
}

void fire_after(Kill& one, long us) noexcept {
  one.is_timed = true;
  ::signal(SIGALRM, fire_in_time);
  const itimerval timer{{0, 0}, {us / 1'000'000, us % 1'000'000 + 1}};
  ::setitimer(ITIMER_REAL, &timer, nullptr);
}

void end_at(const char* name) noexcept {
  if (at_fail_point != nullptr) at_fail_point(name);
  for (Kill& one : kills()) {
    if (one.point != name || ++one.reached != one.count) continue;
    one.later_us > 0 ? fire_after(one, one.later_us) : fire(one);
  }
}

void read_variable(int id, const char* variable, int signal) {
  const char* text = std::getenv(variable);
  std::istringstream all(text == nullptr ? "" : text);
  for (std::string word; std::getline(all, word, ',');) {
    const std::size_t first = word.find(':'), last = word.rfind(':'), plus = word.find('+', last);
    if (std::stoi(word.substr(0, first)) != id) continue;
    Kill& one = kills().emplace_back();
    one.point = word.substr(first + 1, last - first - 1);
    one.count = std::stol(word.substr(last + 1));
    if (plus != std::string::npos) one.later_us = std::stol(word.substr(plus + 1));
    one.signal = signal;
    one.line = "fired " + word + "\n";
    if (one.point == "after") fire_after(one, one.count);
  }
}

}  // namespace

void read_kills(int id) {
  read_variable(id, "TEST_KILL", SIGKILL);
  read_variable(id, "TEST_STOP", SIGSTOP);
  if (const char* text = std::getenv("TEST_STOP_MS")) stop_ms = std::atoi(text);
  fail_point_hook = end_at;
}

void forget_kills() {
  const itimerval never{};
  ::setitimer(ITIMER_REAL, &never, nullptr);
}

}  // namespace horo
