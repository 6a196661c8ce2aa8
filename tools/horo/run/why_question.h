// WhyQuestion: the guard's side of `horo why`. It asks rank 0, which asks all ranks, through memory that it shares with
// the ranks of its host, and a pipe that wakes rank 0. Nothing is asked, and no timer runs, until a person asks.
#pragma once

#include <functional>
#include <map>
#include <optional>

#include "horo/base/run_table.h"
#include "horo/base/time.h"
#include "tools/horo/machine/descriptor.h"
#include "tools/horo/run/events.h"
#include "tools/horo/run/job_waits.h"

namespace horo::tools {

class WhyQuestion {
 public:
  // table: null, or outlives this object. on_time: answer() is to be called again.
  WhyQuestion(struct ev_loop* loop, RunTable* table, std::function<void()> on_time);

  // A person asks. One that asks while another waits gets the same answer.
  void ask();
  // What is known, when rank 0 has answered, cannot, or has had its time; else nothing, and on_time is called later.
  // slots: of the ranks that run on this host, by MemberStatus::id.
  std::optional<JobWaits> answer(JobStatus status, const std::map<int, int>& slots);
  // No one waits for an answer any more.
  void stop();

 private:
  std::vector<RankStart> starts(const JobStatus& status, const std::map<int, int>& slots) const;
  std::string why_not(const JobWaits& waits, const std::map<int, int>& slots) const;

  RunTable* const table_;
  Descriptor bell_;  // both ends of a pipe
  Timer next_look_;
  std::optional<std::uint32_t> question_;  // whose answer is waited for
  TimePoint until_;
};

}  // namespace horo::tools
