// RunWatch: decides when a run of the script ends. A pure state machine: no I/O, no clock.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tools/horo/scale/run_data.h"

namespace horo::tools {

class RunWatch {
 public:
  // first_step_ns: so long after its start a script has its first step. Times are of one clock.
  RunWatch(const StepWindow& window, std::int64_t first_step_ns, std::int64_t started);

  // A step that rank 0 has written.
  void on_step(std::int64_t begin, std::int64_t time);

  enum class Order : std::uint8_t { kGoOn, kEnd };
  // What to do now. Once it is kEnd, it stays so.
  Order order(std::int64_t now);

  // Why the run has no figures; empty: it may have some.
  const std::string& failure() const { return failure_; }
  std::int64_t steps() const { return steps_; }
  // Of the window, so much has passed, at most all of it.
  std::int64_t measured_ns() const;

 private:
  Order end(const std::string& failure);

  const StepWindow window_;
  const std::int64_t first_step_ns_, started_;
  std::int64_t steps_ = 0, first_begin_ = 0, end_ = 0;
  std::optional<std::int64_t> window_begin_;
  std::int64_t seen_ = 0, seen_at_ = 0;  // steps at the last look with new ones
  bool is_ended_ = false;
  std::string failure_;
};

}  // namespace horo::tools
