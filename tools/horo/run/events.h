// libev's watchers as objects: the destructor stops the watcher. They cannot be moved, because libev holds their
// address.
#pragma once

#include <ev.h>

#include <functional>

#include "horo/base/awake_clock.h"

namespace horo::tools {

class IoWatch {
 public:
  IoWatch(struct ev_loop* loop, int fd, int events, std::function<void()> on_ready);
  ~IoWatch() { stop(); }
  IoWatch(const IoWatch&) = delete;
  IoWatch& operator=(const IoWatch&) = delete;
  void start() { ::ev_io_start(loop_, &io_); }
  void stop() { ::ev_io_stop(loop_, &io_); }

 private:
  struct ev_loop* loop_;
  std::function<void()> on_ready_;
  ev_io io_{};
};

// Fires after all events that the loop has found at the same time.
class Timer {
 public:
  Timer(struct ev_loop* loop, std::function<void()> on_time);
  ~Timer() { stop(); }
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;
  // Fires once, `seconds` from now. Replaces an earlier time.
  void set(double seconds);
  void stop() { ::ev_timer_stop(loop_, &timer_); }
  bool is_set() const { return ev_is_active(&timer_); }

 private:
  struct ev_loop* loop_;
  std::function<void()> on_time_;
  ev_timer timer_{};
};

// A timer for the patience with another part of the job. Time in which this process did not run, as in a paused
// container, is none: after such a pause the whole time begins anew.
class PatientTimer {
 public:
  PatientTimer(struct ev_loop* loop, std::function<void()> on_time);
  // Fires once, after `seconds`. Replaces an earlier time.
  void set(double seconds);
  void stop() { next_.stop(); }
  bool is_set() const { return next_.is_set(); }

 private:
  void look();

  const std::function<void()> on_time_;
  AwakeClock clock_{Duration()};
  TimePoint since_{};
  Duration time_{};
  Timer next_;
};

class SignalWatch {
 public:
  SignalWatch(struct ev_loop* loop, int signal, std::function<void(int)> on_signal);
  ~SignalWatch() { ::ev_signal_stop(loop_, &signal_); }
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

 private:
  struct ev_loop* loop_;
  std::function<void(int)> on_signal_;
  ev_signal signal_{};
};

class ChildWatch {
 public:
  // Calls `on_end` once, with the status of waitpid(), after the process has been reaped. Calls `on_stop`, if there is
  // one, with true when the process stops, with false when it continues.
  ChildWatch(struct ev_loop* loop, pid_t pid, std::function<void(int)> on_end,
             std::function<void(bool)> on_stop = nullptr);
  ~ChildWatch() { ::ev_child_stop(loop_, &child_); }
  ChildWatch(const ChildWatch&) = delete;
  ChildWatch& operator=(const ChildWatch&) = delete;

 private:
  struct ev_loop* loop_;
  void take(int status);

  std::function<void(int)> on_end_;
  std::function<void(bool)> on_stop_;
  ev_child child_{};
};

}  // namespace horo::tools
