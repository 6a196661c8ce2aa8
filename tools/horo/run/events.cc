#include "tools/horo/run/events.h"

#include <sys/wait.h>

#include <algorithm>
#include <chrono>
#include <utility>

namespace horo::tools {

IoWatch::IoWatch(struct ev_loop* loop, int fd, int events, std::function<void()> on_ready)
    : loop_(loop), on_ready_(std::move(on_ready)) {
  ev_io_init(
      &io_, [](struct ev_loop*, ev_io* w, int) { static_cast<IoWatch*>(w->data)->on_ready_(); }, fd, events);
  io_.data = this;
}

Timer::Timer(struct ev_loop* loop, std::function<void()> on_time) : loop_(loop), on_time_(std::move(on_time)) {
  ev_init(&timer_, [](struct ev_loop*, ev_timer* w, int) { static_cast<Timer*>(w->data)->on_time_(); });
  ev_set_priority(&timer_, EV_MINPRI);  // libev calls watchers of one priority in any order
  timer_.data = this;
}

void Timer::set(double seconds) {
  stop();
  ::ev_now_update(loop_);  // otherwise the time would count from the loop's last wake-up
  ev_timer_set(&timer_, seconds, 0.);
  ::ev_timer_start(loop_, &timer_);
}

PatientTimer::PatientTimer(struct ev_loop* loop, std::function<void()> on_time)
    : on_time_(std::move(on_time)), next_(loop, [this] { look(); }) {}

void PatientTimer::set(double seconds) {
  time_ = std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
  since_ = Clock::now();
  clock_ = AwakeClock::for_limit(time_);
  look();
}

void PatientTimer::look() {
  const TimePoint now = Clock::now();
  clock_.look(now);
  const TimePoint due = std::max(since_, clock_.since()) + time_;
  if (now >= due) return on_time_();
  const std::chrono::duration<double> wait = std::min(due, clock_.due(now)) - now;
  next_.set(wait.count() + 0.001);  // libev's clock may be behind
}

SignalWatch::SignalWatch(struct ev_loop* loop, int signal, std::function<void(int)> on_signal)
    : loop_(loop), on_signal_(std::move(on_signal)) {
  ev_signal_init(
      &signal_, [](struct ev_loop*, ev_signal* w, int) { static_cast<SignalWatch*>(w->data)->on_signal_(w->signum); },
      signal);
  signal_.data = this;
  ::ev_signal_start(loop_, &signal_);
}

ChildWatch::ChildWatch(struct ev_loop* loop, pid_t pid, std::function<void(int)> on_end,
                       std::function<void(bool)> on_stop)
    : loop_(loop), on_end_(std::move(on_end)), on_stop_(std::move(on_stop)) {
  ev_child_init(
      &child_, [](struct ev_loop*, ev_child* w, int) { static_cast<ChildWatch*>(w->data)->take(w->rstatus); }, pid,
      on_stop_ ? 1 : 0);
  child_.data = this;
  ::ev_child_start(loop_, &child_);
}

void ChildWatch::take(int status) {
  if (WIFSTOPPED(status) || WIFCONTINUED(status)) {
    if (on_stop_) on_stop_(WIFSTOPPED(status));
  } else {
    ::ev_child_stop(loop_, &child_);
    on_end_(status);
  }
}

}  // namespace horo::tools
