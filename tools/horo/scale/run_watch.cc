#include "tools/horo/scale/run_watch.h"

#include <algorithm>

#include "horo/base/say.h"
#include "tools/horo/scale/scale_plan.h"

namespace horo::tools {
namespace {

constexpr std::int64_t kLeastStill = 60'000'000'000;  // without a new step, for so long a run is waited for

}  // namespace

RunWatch::RunWatch(const StepWindow& window, std::int64_t first_step_ns, std::int64_t started)
    : window_(window), first_step_ns_(first_step_ns), started_(started) {}

void RunWatch::on_step(std::int64_t begin, std::int64_t time) {
  if (steps_ == 0) first_begin_ = begin;
  if (!window_begin_ && !window_.is_warm_up(steps_, begin - first_begin_)) window_begin_ = begin;
  ++steps_;
  end_ = begin + time;
}

RunWatch::Order RunWatch::order(std::int64_t now) {
  if (is_ended_) return Order::kEnd;
  if (steps_ == 0) {
    if (now - started_ < first_step_ns_) return Order::kGoOn;
    return end(say("no steps in ", time_text(first_step_ns_),
                   ": does the script use DistributedOptimizer or a process group? (--first-step waits longer)"));
  }
  if (window_begin_ && end_ - *window_begin_ >= window_.length_ns) return end("");
  if (steps_ != seen_) {
    seen_ = steps_;
    seen_at_ = now;
  }
  const std::int64_t patience = std::max(kLeastStill, 2 * window_.length_ns);
  if (now - seen_at_ < patience) return Order::kGoOn;
  return end(say("no new step in ", time_text(patience), ", after ", steps_, " of them"));
}

std::int64_t RunWatch::measured_ns() const {
  return window_begin_ ? std::clamp<std::int64_t>(end_ - *window_begin_, 0, window_.length_ns) : 0;
}

RunWatch::Order RunWatch::end(const std::string& failure) {
  is_ended_ = true;
  failure_ = failure;
  return Order::kEnd;
}

}  // namespace horo::tools
