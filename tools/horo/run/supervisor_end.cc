// The end of the job on this host, and its exit code. docs/elastic.md has the rules for elastic jobs.
#include <signal.h>

#include <algorithm>
#include <utility>

#include "tools/horo/run/child.h"
#include "tools/horo/run/host_start.h"
#include "tools/horo/run/lines.h"
#include "tools/horo/run/step_text.h"
#include "tools/horo/run/supervisor.h"

namespace horo::tools {

// When all others have ended: an evicted rank that is stopped is killed, one that runs has the usual time to end. One
// that has not joined has nothing to join.
void RankSupervisor::end_evicted() {
  bool is_one_running = false;
  for (const auto& [id, rank] : ranks_) {
    if (rank.is_running && !elastic_->is_evicted(id) && elastic_->has_joined(id)) return;
    is_one_running = is_one_running || (rank.is_running && !rank.is_stopped);
  }
  for (auto& [id, rank] : ranks_) {
    if (!rank.is_running) continue;
    if (rank.is_stopped) signal_group(rank.pid, SIGKILL);
    if (!elastic_->has_joined(id) && !rank.is_sent_away) send_away(rank, SIGTERM);
  }
  if (!is_one_running || is_failing_ || is_terminating_) return;
  is_failing_ = true;
  grace_.set(kGraceSeconds);
}

void RankSupervisor::check_end() {
  if (!is_concluded_) {
    start_joiners();
    if (!end_finished_ranks()) return;
    const bool is_forced = is_interrupted_ || (!is_notice_over_ && (is_terminating_ || is_given_up_ || code_));
    if (elastic_ && !is_forced && !elastic_->may_end(!is_draining_ && has_failed_rank())) return grace_.stop();
    conclude();
  }
  if (output_->is_empty() && errors_->is_empty()) ::ev_break(loop_, EVBREAK_ALL);
}

// Kills the remaining processes of ranks that are finished. True if all ranks are finished.
bool RankSupervisor::end_finished_ranks() {
  bool are_all_finished = are_all_started_;
  for (auto& [id, rank] : ranks_) {
    if (!rank.is_finished()) {
      are_all_finished = false;
    } else if (rank.leftovers.is_set()) {
      rank.leftovers.stop();
      signal_group(rank.pid, SIGKILL);
    }
  }
  return are_all_finished;
}

void RankSupervisor::conclude() {
  is_concluded_ = true;
  grace_.stop();
  notice_.stop();
  timeout_.stop();
  progress_.stop();
  std::vector<RankEnd> ends;
  for (auto& [id, rank] : ranks_) {
    rank.end.output = rank.output.tail();
    rank.end.errors = rank.errors.tail();
    rank.end.was_survived = is_survived(rank);
    rank.end.was_joining = elastic_ && !elastic_->has_joined(id);
    ends.push_back(rank.end);
  }
  const bool is_no_rank = std::all_of(ends.begin(), ends.end(), [](const RankEnd& end) { return end.was_no_rank; });
  if (is_no_rank && launch_.ranks_by_host.size() > 1 && !elastic_ && !code_ && !is_interrupted_) {
    say("no rank of this host called horo.init(); ranks of other hosts that did wait for them");
  }
  const ExitVerdict verdict = exit_verdict(ends, launch_.title, host_, elastic_ != nullptr);
  const bool is_ended_by_others = is_interrupted_ || is_draining_ || code_;
  if (!code_) code_ = verdict.code != 0 ? verdict.code : code_without_failure();
  if (RunTable* table = world_.table(); table != nullptr && *code_ != 0 && !is_ended_by_others) table->set_failed();
  if (launch_.is_part && (verdict.is_elsewhere || is_left_behind_)) {
    output_->write(std::string(kConsequenceLine) + "\n");
  }
  if (launch_.summarizes) {
    if (const std::string text = summary_text(steps_.summary()); !text.empty())
      errors_->write(launch_.title + ": " + text);
  }
  if (!is_interrupted_) errors_->write(cut_lines(verdict.text));
}

bool RankSupervisor::has_failed_rank() const {
  const auto has_failed = [this](const auto& one) {
    const bool has_joined = !elastic_ || elastic_->has_joined(one.first);
    return code_of(one.second.end.status) != 0 && !one.second.end.was_terminated && has_joined;
  };
  return std::any_of(ranks_.begin(), ranks_.end(), has_failed);
}

// While the job goes on elsewhere, a rank of this host that has come to its end speaks for it. A host that was left
// behind has its code.
bool RankSupervisor::has_job_survived() const {
  if (is_left_behind_) return true;
  if (elastic_->is_over()) return elastic_->finished() >= launch_.min_ranks;
  return std::any_of(ranks_.begin(), ranks_.end(), [this](const auto& one) {
    const RankEnd& end = one.second.end;
    return code_of(end.status) == 0 && !end.was_terminated && !elastic_->is_evicted(one.first);
  });
}

// After an interrupt the ranks end by it: the job has not gone on without them.
bool RankSupervisor::is_survived(const Rank& rank) const {
  if (!elastic_ || elastic_->is_judged(rank.id) || !has_job_survived()) return false;
  return !is_interrupted_ || rank.is_lost_before;
}

// A code of 0 is that of ranks that have come to their ends.
int RankSupervisor::code_without_failure() {
  if (is_ended_by_notice()) return 128 + SIGTERM;
  if (is_given_up_) return 1;
  if (!elastic_ || has_job_survived()) return 0;
  say(std::to_string(elastic_->finished()) + " of " + std::to_string(launch_.size()) +
      " ranks have come to the end of their scripts, fewer than --min-np " + std::to_string(launch_.min_ranks));
  return 1;
}

}  // namespace horo::tools
