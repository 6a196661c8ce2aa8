// Ranks that are started later: in the slots of ranks that are lost, and in new ones after `horo resize`. Respawns
// decides when; a rank that has started waits until JobMembership lets it join.
#include <algorithm>
#include <chrono>
#include <exception>
#include <utility>

#include "elastic/messages.h"
#include "tools/horo/run/lines.h"
#include "tools/horo/run/supervisor.h"

namespace horo::tools {

std::unique_ptr<Respawns> RankSupervisor::make_respawns() const {
  const bool may_grow = launch_.restarts > 0 || launch_.max_ranks > launch_.size();
  if (!elastic_ || !may_grow) return nullptr;
  const std::chrono::milliseconds cool_down(static_cast<long long>(launch_.cool_down_s * 1000));
  return std::make_unique<Respawns>(RespawnConfig{launch_.ranks(), launch_.restarts, cool_down});
}

bool RankSupervisor::may_start_joiners() const {
  return are_all_started_ && !is_draining_ && !is_interrupted_ && !is_terminating_ && !is_job_over_ && !is_given_up_ &&
         !code_ && !elastic_->is_over();
}

// After each event that may allow it.
void RankSupervisor::start_joiners() {
  if (!respawns_ || !are_all_started_ || std::exchange(is_starting_, true)) return;
  const TimePoint now = Clock::now();
  tell_slots(now);
  if (!may_start_joiners()) respawns_->stop();
  const Respawns::Decided decided = respawns_->pass_time(now, {elastic_->can_grow(), elastic_->was_growth_offered()});
  for (const std::string& line : decided.lines) say(line);
  for (const Respawns::Start& start : decided.starts) start_joiner(start, now);
  tell_none_is_started(now);
  joiners_due_.stop();
  if (const auto due = respawns_->next_deadline()) {
    const std::chrono::duration<double> wait = *due - Clock::now();
    joiners_due_.set(std::max(wait.count(), 0.0) + 0.001);  // libev's clock may be behind
  }
  is_starting_ = false;
}

// A job of which too few ranks are left does not wait for others in vain. A rank that is out may leave its slot, or may
// join again if it was evicted.
void RankSupervisor::tell_none_is_started(TimePoint now) {
  const auto may_change = [this](const auto& one) {
    const auto& [id, rank] = one;
    return !rank.is_gone && (elastic_->is_out(id) || !elastic_->has_joined(id));
  };
  const std::chrono::duration<double> park(launch_.park_timeout_s);
  const TimePoint until = now + std::chrono::duration_cast<Duration>(park);
  if (!elastic_->is_parked() || respawns_->starts_until(until)) return;
  if (std::none_of(ranks_.begin(), ranks_.end(), may_change)) carry_out(elastic_->on_none_is_started());
}

// A slot is free when its process has ended, with all that it has started, and the job goes on without it.
void RankSupervisor::tell_slots(TimePoint now) {
  for (auto& [id, rank] : ranks_) {
    if (world_.joins(static_cast<int>(id)) && !rank.has_joined && elastic_->has_joined(id)) {
      rank.has_joined = true;
      respawns_->on_joined(rank.slot.local_rank, now);
    }
    if (rank.is_gone || !rank.is_finished() || !elastic_->is_gone(id)) continue;
    rank.is_gone = true;
    if (elastic_->has_ended_in_order(id) && elastic_->has_joined(id)) {
      respawns_->on_left(rank.slot.local_rank);
    } else {
      respawns_->on_lost(loss_of(rank), now);
    }
  }
}

SlotLoss RankSupervisor::loss_of(const Rank& rank) const {
  SlotLoss loss{rank.slot.local_rank, rank.id, elastic_->has_joined(rank.id), status_text(rank.end.status), ""};
  for (const OutputTail* tail : {&rank.errors.tail(), &rank.output.tail()}) {
    if (loss.line.empty()) loss.line = tail->exception();
    if (loss.line.empty() && !tail->lines().empty()) loss.line = tail->lines().back();
  }
  return loss;
}

void RankSupervisor::start_joiner(const Respawns::Start& start, TimePoint now) {
  const MemberId id = elastic_->next_id();
  const std::string name = "rank " + std::to_string(id);
  if (id >= kMaxMembers) {
    say("no rank is started any more: the job has had " + std::to_string(kMaxMembers) + " ranks, the most that it may");
    return respawns_->stop();
  }
  try {
    make_files_of(id);
    start_rank(id, world_.slot(start.slot));
  } catch (const std::exception& error) {
    elastic_->disconnect(id);
    say(name + " cannot be started: " + error.what());
    return respawns_->on_lost({start.slot, start.instead.value_or(id), false, error.what(), ""}, now);
  }
  say(name + " is started" + (start.instead ? " in the place of rank " + std::to_string(*start.instead) : ""));
  carry_out(elastic_->on_started(id));
}

void RankSupervisor::Rank::become(MemberId member, const std::string& prefix) {
  id = member;
  end.rank = static_cast<int>(member);
  has_joined = false;
  output.set_prefix(prefix);
  errors.set_prefix(prefix);
}

// The process stays in its slot: only its number is another one.
void RankSupervisor::carry_out(const MemberReturns& event) {
  const auto found = ranks_.find(event.id);
  const MemberId id = elastic_->next_id();
  const bool is_possible = found != ranks_.end() && found->second.is_running && respawns_ && id < kMaxMembers &&
                           may_start_joiners() && elastic_->can_grow();
  if (!is_possible || !respawns_->take_back(found->second.slot.local_rank, Clock::now())) {
    return elastic_->refuse(event.id);
  }
  auto node = ranks_.extract(found);
  node.key() = id;
  Rank& rank = ranks_.insert(std::move(node)).position->second;
  rank.become(id, prefix_of(id));
  if (RunTable* table = world_.table()) {
    table->describe(rank.slot.local_rank, world_.environment(rank.slot, static_cast<int>(id)));
  }
  steps_.ended(static_cast<int>(event.id));
  steps_.started(static_cast<int>(id), rank.slot.local_rank);
  say("rank " + std::to_string(event.id) + " runs again, and joins as rank " + std::to_string(id));
  carry_out(elastic_->admit(event.id));
}

std::string RankSupervisor::why_no_resize(int ranks) const {
  if (!elastic_) return "it is not elastic: start it with --min-np";
  if (launch_.ranks_by_host.size() > 1) return "it runs on several hosts: only jobs of one host can be resized";
  if (!respawns_ || ranks > launch_.max_ranks) {
    return "it may have at most " + std::to_string(std::max(launch_.max_ranks, launch_.ranks())) +
           " ranks: start it with a greater --max-np";
  }
  if (ranks < respawns_->slots()) {
    return "it has places for " + std::to_string(respawns_->slots()) +
           " ranks: a job cannot be made smaller in this version";
  }
  if (!may_start_joiners()) return "it ends";
  if (!elastic_->was_growth_offered()) {
    return "no rank has come to a loop of horo.elastic.State, without which no rank can join (docs/elastic.md)";
  }
  return "";
}

ResizeAnswer RankSupervisor::resize(int ranks) {
  if (std::string why = why_no_resize(ranks); !why.empty()) return {false, std::move(why)};
  const int before = respawns_->slots();
  const int starts = respawns_->grow_to(ranks, Clock::now());
  const std::string places = "places for " + std::to_string(ranks) + (ranks == 1 ? " rank" : " ranks");
  if (ranks > before) say("the job has " + places + " from now on (horo resize)");
  check_end();
  return {true, "it has " + places + "; ranks to be started: " + std::to_string(starts)};
}

}  // namespace horo::tools
