// SIGTERM to an elastic job drains the host: its ranks get a notice, and leave where they lose nothing, while the job
// goes on elsewhere. The ranks of a static job leave together, after one and the same step. Ranks that are left when
// the grace is over get SIGTERM, and SIGKILL later.
#include <signal.h>

#include <algorithm>
#include <chrono>

#include "elastic/texts.h"
#include "tools/horo/run/child.h"
#include "tools/horo/run/supervisor.h"

namespace horo::tools {
namespace {

constexpr std::chrono::milliseconds kStepLead{100};  // from the look at the steps of the ranks to their notice

}  // namespace

std::chrono::milliseconds RankSupervisor::grace() const {
  return std::chrono::milliseconds(static_cast<long>(launch_.grace_s * 1000));
}

bool RankSupervisor::may_drain() const {
  return launch_.grace_s > 0 && !is_draining_ && !is_interrupted_ && !is_terminating_ && !is_concluded_;
}

// Without steps there is none to leave after.
bool RankSupervisor::drain_static() {
  RunTable* const table = world_.table();
  const auto step = table == nullptr ? std::nullopt : steps_.step_after(kStepLead);
  if (!step) return false;
  is_draining_ = true;
  table->set_notice(*step, Clock::now() + grace());
  notice_.set(launch_.grace_s);
  say("SIGTERM: the ranks leave after step " + std::to_string(*step));
  return true;
}

// A rank without a session has no round to end, and reads no notice.
bool RankSupervisor::drain() {
  if (!elastic_) return drain_static();
  is_draining_ = true;
  carry_out(elastic_->drain(grace()));
  on_elastic_change();
  notice_.set(launch_.grace_s);
  std::vector<MemberId> sent_away;
  for (auto& [id, rank] : ranks_) {
    if (!rank.is_running || elastic_->has_session(id)) continue;
    sent_away.push_back(id);
    send_away(rank, SIGTERM);
  }
  if (!sent_away.empty()) say("the host is drained: SIGTERM to " + ranks_text(sent_away) + ", without a session yet");
  return true;
}

// With all ranks gone, this process may still serve the job's other hosts.
void RankSupervisor::on_notice_over() {
  is_notice_over_ = true;
  if (elastic_) elastic_->serve_no_longer();
  if (!is_one_running()) return check_end();
  say(running_text() + " did not leave within " + duration_text(grace()) + " of the notice (--grace): SIGTERM");
  if (!code_) code_ = 128 + SIGTERM;
  if (!is_terminating_) terminate();
}

bool RankSupervisor::is_ended_by_notice() const {
  if (!is_draining_ || !elastic_) return is_draining_;
  const auto is_sent_away = [this](const auto& one) {
    return one.second.is_sent_away && elastic_->has_joined(one.first);
  };
  return elastic_->is_ended_by_notice() || std::any_of(ranks_.begin(), ranks_.end(), is_sent_away);
}

bool RankSupervisor::is_one_running() const {
  return std::any_of(ranks_.begin(), ranks_.end(), [](const auto& one) { return one.second.is_running; });
}

// Ranks whose calls wait have been told, and ranks that are still in a long step have the time that they had to wait.
void RankSupervisor::end_job(const std::string& text) {
  is_given_up_ = true;
  if (is_terminating_ || std::exchange(is_job_over_, true)) return;
  say(text);
  for (auto& [id, rank] : ranks_) {
    if (!rank.is_running || has_left(rank)) continue;
    if (rank.is_stopped || !elastic_->has_session(id)) send_away(rank, rank.is_stopped ? SIGKILL : SIGTERM);
    grace_.set(launch_.park_timeout_s);
  }
}

void RankSupervisor::send_away(Rank& rank, int signal) {
  rank.is_sent_away = true;
  signal_group(rank.pid, signal);
}

}  // namespace horo::tools
