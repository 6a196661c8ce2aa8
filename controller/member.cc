// The events of this rank. As in the leader (agreement.h), readiness is stored either with the tensor or with its plan.
// split() moves it from the plan to its tensors: when an item refers to one of them alone, or the plan is dissolved.
#include "controller/member.h"

#include <algorithm>
#include <utility>

#include "controller/texts.h"
#include "horo/base/check.h"

namespace horo {
namespace {

// What the leader needs of a lost tensor. Its other fields may mean nothing in this epoch.
TensorSpec lost_spec(const TensorSpec& spec) {
  TensorSpec lost;
  lost.set = spec.set;
  lost.channel = spec.channel;
  lost.name = spec.name;
  lost.kind = CollectiveKind::kBarrier;
  return lost;
}

// No number is given to what runs once, so the next instance is reported with its unit.
TensorSpec alone_spec(const TensorSpec& spec) {
  TensorSpec alone = spec;
  alone.unit.clear();
  alone.unit_size = 0;
  alone.once = true;
  alone.stepwise = false;
  return alone;
}

}  // namespace

void Member::declare(Key key, const TensorSpec& spec) {
  const bool fresh = tensors_.try_emplace(key).second;
  HORO_CHECK(fresh);
  tensors_[key].spec = spec;
  names_[name_of(spec)].push_back(key);
}

Member::Tensor& Member::tensor(Key key) {
  const auto found = tensors_.find(key);
  HORO_CHECK(found != tensors_.end());
  return found->second;
}

Member::KnownPlan& Member::plan(PlanId id) {
  HORO_CHECK(id >= 1 && id <= plans_.size());
  return plans_[id - 1];
}

void Member::on(const Submitted& event, TimePoint now, Actions& actions) {
  if (is_over_) return;  // it is reported in the next epoch
  take(event, now, actions);
  if (leader_left_) leader_left(actions);
}

void Member::take(const Submitted& event, TimePoint now, Actions& actions) {
  const Key key = event.key;
  const TensorSpec& spec = tensor(key).spec;
  // Each of the ranks of a message or of a set of members reports that by itself. The name of a message has numbers of
  // ranks: another message may now have the same one.
  if (event.lost && (spec.kind == CollectiveKind::kSendRecv || spec.by_members)) {
    return fail(key, lost_head(spec.name, of_set(spec.set)) + lost_text(), actions, true);
  }
  Refusal refusal = refusal_of(spec);
  if (!refusal.text.empty()) return fail(key, std::move(refusal.text), actions, refusal.lost);
  if (spec.kind == CollectiveKind::kJoin) joins_[spec.set] = key;
  submit(key, event, now);
}

// The reason why a submission fails at once.
Member::Refusal Member::refusal_of(const TensorSpec& spec) {
  if (sets_.find(spec.set) == nullptr) return {removed_text(spec.name, of_set(spec.set))};
  if (joins_.contains(spec.set)) return {after_join_text(spec.name, of_set(spec.set))};
  if (owed_.empty()) return {};
  const TensorName name = name_of(spec);
  const auto owed = owed_.lower_bound(name);
  if (owed == owed_.end() || owed->first != name) return {};
  return std::move(owed_.extract(owed).mapped());
}

void Member::fail(Key key, std::string text, Actions& actions, bool lost) {
  actions.emplace_back(Fail{{key}, std::move(text), lost});
  finish(key);
}

void Member::submit(Key key, const Submitted& event, TimePoint now) {
  Tensor& t = tensor(key);
  HORO_CHECK(!t.pending && (t.plan == 0 || !plan(t.plan).complete));
  t.pending = t.queued = true;
  t.absent = event.absent;
  t.lost = event.lost;
  t.alone = event.alone;
  t.since = event.at == TimePoint::min() ? now : event.at;
  if (t.id) by_id_[*t.id].key = key;
  queued_.push_back(key);
}

void Member::on(const PlanComplete& event, TimePoint now, Actions& actions) {
  if (is_over_) return;
  KnownPlan& p = plan(event.plan);
  if (!p.live) {
    // It became complete before the engine applied the Break.
    for (const Key key : p.keys) {
      const bool absent = std::find(event.absent.begin(), event.absent.end(), key) != event.absent.end();
      take({.key = key, .absent = absent, .at = event.at}, now, actions);
    }
  } else {
    HORO_CHECK(!p.complete);
    p.complete = p.queued = true;
    p.absent = event.absent;
    p.since = event.at == TimePoint::min() ? now : event.at;
    queued_plans_.push_back(event.plan);
  }
  if (leader_left_) leader_left(actions);
}

void Member::on(const PlanActive& event) {
  if (plan(event.plan).live) queued_active_.push_back(event.plan);
}

// The first member of a set reports its step ends; on rank 0 the leader receives them directly (coordinator.cc).
void Member::on(const StepEnded& event) {
  const KnownSet* set = sets_.find(event.set);
  if (set == nullptr || set->ranks.front() != config_.rank) return;
  if (plannable_.erase(event.set) > 0) queued_ended_.push_back(event.set);
}

void Member::on(const Diagnosed& event) {
  Diagnosis answer{event.question, event.call_sites.substr(0, kMaxAnswerBytes)};
  answer.unchanged = std::chrono::duration_cast<std::chrono::milliseconds>(event.waits.unchanged);
  if (event.waits.threads.size() <= kMaxWaitingThreads) {
    for (const std::vector<Key>& keys : event.waits.threads) answer.threads.push_back(unreleased(keys));
  }
  queued_answers_.push_back(std::move(answer));
}

// The first of these keys that this rank has submitted and the leader has not released.
std::vector<Awaited> Member::unreleased(const std::vector<Key>& keys) const {
  std::vector<Awaited> waits;
  for (const Key key : keys) {
    const auto found = tensors_.find(key);
    if (found == tensors_.end() || waits.size() == kMaxAwaitedTensors) continue;
    const Tensor& t = found->second;
    const bool in_plan = t.plan != 0 && plans_[t.plan - 1].complete;
    if (t.pending || in_plan) waits.push_back({name_of(t.spec), t.spec.kind == CollectiveKind::kJoin});
  }
  return waits;
}

// The leader holds nothing back in a removed set.
void Member::on(const Done& event) {
  if (sets_.find(event.set) != nullptr) queued_done_.push_back(event);
}

void Member::leader_left(Actions& actions) {
  if (is_over_) return;
  leader_left_ = true;
  for (KnownPlan& p : plans_) split(p);
  std::vector<Key> pending;
  for (const auto& [key, t] : tensors_) {
    if (t.pending) pending.push_back(key);
  }
  std::sort(pending.begin(), pending.end());
  for (const Key key : pending) {
    const TensorSpec& spec = tensor(key).spec;
    const std::string of = of_set(spec.set);
    const bool joins = spec.kind == CollectiveKind::kJoin;
    std::string text = joins ? lost_join_text({0}, of) : left_text(spec.name, {0}, of);
    if (const KnownSet* set = sets_.find(spec.set); set != nullptr && !set->members.contains(0))
      text = leader_left_text(joins ? "join" + of + ": " : lost_head(spec.name, of));
    fail(key, text, actions);
  }
  joins_.clear();
}

std::vector<UpMessage> Member::take_reports(TimePoint now) {
  UpMessage last = collect(now);
  std::vector<UpMessage> reports = std::exchange(complete_reports_, {});
  if (std::exchange(owes_report_, false) || !last.empty()) reports.push_back(std::move(last));
  return reports;
}

// The queued reports as a message. The begins of rounds stay queued if there is nothing else.
UpMessage Member::collect(TimePoint now) {
  UpMessage report;
  TimePoint last = TimePoint::min();  // when the last tensor was ready
  report.applied = applied_;
  report.active = std::exchange(queued_active_, {});
  report.answers = std::exchange(queued_answers_, {});
  report.ended = std::exchange(queued_ended_, {});
  report.done = std::exchange(queued_done_, {});
  for (const Key key : std::exchange(queued_, {})) {
    const auto found = tensors_.find(key);
    if (found == tensors_.end() || !std::exchange(found->second.queued, false)) continue;
    const Tensor& t = found->second;
    last = std::max(last, t.since);
    if (t.lost) {
      report.requests.push_back({lost_spec(t.spec), false, true});
    } else if (t.alone) {
      report.requests.push_back({alone_spec(t.spec), t.absent});
    } else if (!t.id) {
      report.requests.push_back({t.spec, t.absent});
    } else {
      (t.absent ? report.absent : report.present).push_back(*t.id);
    }
  }
  for (const PlanId id : std::exchange(queued_plans_, {})) {
    KnownPlan& p = plan(id);
    if (!std::exchange(p.queued, false)) continue;
    last = std::max(last, p.since);
    if (p.absent.empty()) {
      report.plans.push_back(id);
      continue;
    }
    PartialPlan partial{id, {}};
    for (const Key key : p.absent) partial.absent_slots.push_back(tensor(key).slot);
    std::sort(partial.absent_slots.begin(), partial.absent_slots.end());
    report.partial_plans.push_back(std::move(partial));
  }
  if (!report.empty()) report.rounds = std::exchange(queued_rounds_, {});
  if (!report.empty() && queued_figures_) {
    report.figures = std::move(queued_figures_->bytes);
    report.figures_age_us = microseconds_between(queued_figures_->at, now);
    queued_figures_.reset();
  }
  if (last != TimePoint::min()) report.age_us = microseconds_between(last, now);
  return report;
}

// Turns the submission of a whole plan into submissions of its tensors.
void Member::split(KnownPlan& plan) {
  if (!std::exchange(plan.complete, false)) return;
  const bool queued = std::exchange(plan.queued, false);
  for (const Key key : plan.keys) {
    Tensor& t = tensor(key);
    t.pending = true;
    t.queued = queued;
    t.absent = false;
    t.since = plan.since;
    if (t.id) by_id_[*t.id].key = key;
    if (queued) queued_.push_back(key);
  }
  for (const Key key : plan.absent) tensor(key).absent = true;
  plan.absent.clear();
}

bool Member::is_pending(Key key) {
  Tensor& t = tensor(key);
  if (t.plan != 0) split(plan(t.plan));
  return t.pending;
}

std::optional<Key> Member::pending_key(const TensorName& name) {
  const auto found = names_.find(name);
  if (found == names_.end()) return std::nullopt;
  for (const Key key : found->second) {
    if (is_pending(key)) return key;
  }
  return std::nullopt;
}

// The tensor was released, skipped or failed, and may be submitted again.
void Member::finish(Key key) {
  Tensor& t = tensor(key);
  t.pending = t.queued = t.absent = t.lost = t.alone = false;
  if (t.spec.once) erase(key);
}

void Member::erase(Key key) {
  const auto named = names_.find(name_of(tensor(key).spec));
  std::erase(named->second, key);
  if (named->second.empty()) names_.erase(named);
  tensors_.erase(key);
}

// Another key of the name may have the same id: rows of an all_gather may differ.
void Member::undeclare(Key key) {
  const Tensor& t = tensor(key);
  HORO_CHECK(!t.pending && !t.spec.stepwise && t.plan == 0);
  if (t.id && by_id_[*t.id].key == key) {
    by_id_[*t.id].key.reset();
    for (const Key other : names_.at(name_of(t.spec))) {
      if (other != key && tensor(other).id == t.id) by_id_[*t.id].key = other;
    }
  }
  erase(key);
}

std::vector<ReadyTime> Member::ready_times(const std::function<TimePoint(std::uint32_t)>& from) const {
  std::vector<ReadyTime> times;
  for (const auto& [name, keys] : names_) {
    ReadyTime time{name.name, std::vector<TimePoint>(static_cast<std::size_t>(config_.size), TimePoint::min())};
    TimePoint& own = time.since[static_cast<std::size_t>(config_.rank)];
    for (const Key key : keys) {
      const Tensor& t = tensors_.at(key);
      own = std::max(own, t.since);
      if (t.plan != 0) own = std::max(own, plans_[t.plan - 1].since);
    }
    if (own >= from(name.set) && own != TimePoint::min()) times.push_back(std::move(time));
  }
  return times;
}

}  // namespace horo
