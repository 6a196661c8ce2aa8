#include "tests/controller/engine_model.h"

#include <algorithm>
#include <utility>

#include "horo/base/check.h"

namespace horo {

EngineModel::EngineModel(const CoordinatorConfig& config) : rank_(config.rank), coordinator_(config) {
  for (int rank = 0; rank < config.size; ++rank) sets_[0].push_back(rank);
  all_sets_ = sets_;
}

Key EngineModel::key_of(const TensorSpec& spec) {
  for (const Key key : keys_[{spec.set, spec.name}]) {
    HORO_CHECK(!tensors_[key].in_flight);
    if (tensors_[key].spec == spec) return key;
  }
  const Key key = next_key_++;
  tensors_[key].spec = spec;
  keys_[{spec.set, spec.name}].push_back(key);
  declared_.push_back(key);
  return key;
}

CallerWaits EngineModel::waits(TimePoint now) const {
  if (waiting_for_all_since_) {
    std::vector<Key> keys;
    for (const auto& [key, tensor] : tensors_) {
      if (tensor.in_flight) keys.push_back(key);
    }
    return {now - *waiting_for_all_since_, {keys}};
  }
  CallerWaits waits{now - waiting_since_, {}};
  for (const std::vector<TensorSpec>& thread : waits_) {
    std::vector<Key>& keys = waits.threads.emplace_back();
    for (const TensorSpec& spec : thread) {
      const auto named = keys_.find({spec.set, spec.name});
      if (named != keys_.end()) keys.insert(keys.end(), named->second.begin(), named->second.end());
    }
  }
  return waits;
}

bool EngineModel::takes(const TensorSpec& spec) const {
  const auto set = sets_.find(spec.set);
  if (set == sets_.end() || joined_.contains(spec.set)) return false;
  const auto at = std::lower_bound(set->second.begin(), set->second.end(), rank_);
  if (at == set->second.end() || *at != rank_) return false;
  const auto index = at - set->second.begin();
  return spec.kind != CollectiveKind::kSendRecv || spec.root == index || spec.peer == index;
}

void EngineModel::submit(const TensorSpec& spec, bool absent, bool alone) {
  const Key key = key_of(spec);
  Tensor& tensor = tensors_[key];
  tensor.in_flight = true;
  tensor.reported = false;
  tensor.absent = absent;
  tensor.alone = alone;
  ++in_flight_;
  const auto found = plans_.find(tensor.plan);
  if (found == plans_.end() || found->second.broken) return report(key);
  Plan& plan = found->second;
  if (++plan.waiting < plan.keys.size()) return;
  plan.waiting = 0;
  PlanComplete complete{tensor.plan, {}};
  for (const Key k : plan.keys) {
    tensors_[k].reported = true;
    if (tensors_[k].absent) complete.absent.push_back(k);
  }
  events_.emplace_back(std::move(complete));
}

void EngineModel::report(Key key) {
  tensors_[key].reported = true;
  events_.emplace_back(Submitted{key, tensors_[key].absent, false, tensors_[key].alone});
}

void EngineModel::break_up(Plan& plan) {
  plan.waiting = 0;
  for (const Key key : plan.keys) {
    if (tensors_[key].in_flight && !tensors_[key].reported) report(key);
  }
}

void EngineModel::nudge() {
  for (auto& [id, plan] : plans_) {
    if (plan.waiting == 0) continue;
    plan.broken = true;
    break_up(plan);
  }
}

void EngineModel::add_set(std::vector<int> ranks, const std::string& name) {
  TensorSpec spec;
  spec.kind = CollectiveKind::kAddSet;
  spec.name = "add_process_set#" + std::to_string(calls_++);
  spec.once = true;
  spec.set_name = name;
  spec.shape.assign(ranks.begin(), ranks.end());
  submit(spec);
}

void EngineModel::add_set_by_members(std::vector<int> ranks, const std::string& name, bool shrinks) {
  TensorSpec spec = of_members(CollectiveKind::kAddSet, name);
  spec.shrinks = shrinks;
  spec.shape.assign(ranks.begin(), ranks.end());
  submit(spec);
}

void EngineModel::remove_set_by_members(std::uint32_t set, const std::string& name) {
  TensorSpec spec = of_members(CollectiveKind::kRemoveSet, name);
  spec.shape = {set};
  submit(spec);
}

TensorSpec EngineModel::of_members(CollectiveKind kind, const std::string& name) {
  TensorSpec spec;
  spec.kind = kind;
  spec.by_members = true;
  spec.channel = kMembersChannel;
  spec.name = std::string(name_of(kind)) + " '" + name + "'";
  spec.once = true;
  spec.set_name = name;
  return spec;
}

void EngineModel::remove_set(std::uint32_t set) {
  TensorSpec spec;
  spec.kind = CollectiveKind::kRemoveSet;
  spec.name = "remove_process_set#" + std::to_string(calls_++);
  spec.once = true;
  spec.shape = {set};
  submit(spec);
}

void EngineModel::join(std::uint32_t set) {
  nudge();
  TensorSpec spec;
  spec.kind = CollectiveKind::kJoin;
  spec.set = set;
  spec.name = "join";
  spec.once = true;
  if (!takes(spec)) return;
  submit(spec);
  joined_.insert(set);
}

void EngineModel::step_end(std::uint32_t set) {
  events_.emplace_back(StepEnded{set});
  for (auto& [id, plan] : plans_) {
    if (tensors_[plan.keys.front()].spec.set != set) continue;
    const auto busy = [this](Key key) { return tensors_[key].in_flight; };
    if (plan.active || std::any_of(plan.keys.begin(), plan.keys.end(), busy)) continue;
    plan.active = true;
    for (const Key key : plan.keys) tensors_[key].plan = id;
    events_.emplace_back(PlanActive{id});
  }
}

void EngineModel::begin_round(const RoundStream& stream, const RoundNumber& round) {
  report_stream(stream);
  events_.emplace_back(RoundBegun{stream, round});
}

void EngineModel::fail_round(const RoundStream& stream, const std::string& reason) {
  report_stream(stream);
  events_.emplace_back(RoundFailed{stream, reason});
}

// Breaks the incomplete plans to which a tensor of the stream was submitted.
void EngineModel::report_stream(const RoundStream& stream) {
  for (auto& [id, plan] : plans_) {
    const auto waits = [&](Key key) {
      const Tensor& tensor = tensors_[key];
      return tensor.in_flight && !tensor.reported && tensor.spec.set == stream.set &&
             tensor.spec.round_stream == stream.number;
    };
    if (plan.waiting == 0 || std::none_of(plan.keys.begin(), plan.keys.end(), waits)) continue;
    plan.broken = true;
    break_up(plan);
  }
}

void EngineModel::post(Event event) {
  events_.push_back(std::move(event));
}

EngineModel::Turn EngineModel::turn(TimePoint now) {
  for (const Key key : std::exchange(undeclared_, {})) coordinator_.undeclare(key);
  for (const Key key : std::exchange(declared_, {})) coordinator_.declare(key, tensors_[key].spec);
  Actions actions;
  for (const Event& event : std::exchange(events_, {})) coordinator_.on(event, now, actions);
  coordinator_.flush(now, actions);
  Turn turn;
  const std::size_t running = running_.size();
  for (const Action& action : actions) {
    if (const auto* send = std::get_if<Send>(&action)) turn.sends.push_back(*send);
    if (const auto* timer = std::get_if<SetTimer>(&action)) turn.timers.push_back(timer->at);
    if (const auto* release = std::get_if<Release>(&action)) act(*release);
    if (const auto* skip = std::get_if<Skip>(&action)) act(*skip);
    if (const auto* add = std::get_if<AddSet>(&action)) act(*add);
    if (const auto* remove = std::get_if<RemoveSet>(&action)) act(*remove);
    if (const auto* joined = std::get_if<Joined>(&action)) act(*joined);
    if (const auto* fail = std::get_if<Fail>(&action)) act(*fail);
    if (const auto* learn = std::get_if<Learn>(&action)) act(*learn);
    if (const auto* end = std::get_if<Break>(&action)) act(*end);
    if (const auto* warn = std::get_if<Warn>(&action)) warnings_.push_back(warn->text);
    if (const auto* figures = std::get_if<OtherFigures>(&action)) figures_.push_back(*figures);
    if (const auto* answer = std::get_if<Explain>(&action)) explanations_.push_back(*answer);
    if (const auto* diagnose = std::get_if<Diagnose>(&action); diagnose != nullptr && call_sites_) {
      events_.emplace_back(Diagnosed{diagnose->question, *call_sites_, waits(now)});
    }
  }
  turn.started = running_.size() - running;
  return turn;
}

std::vector<std::string> EngineModel::names_of(const std::vector<Key>& keys) const {
  std::vector<std::string> names;
  for (const Key key : keys) names.push_back(tensors_.at(key).spec.name);
  return names;
}

void EngineModel::act(const Release& r) {
  stream_.push_back({false, r.set, r.number, names_of(r.keys), r.key_hash, r.absent_ranks, r.known, r.ranks});
  for (const std::string& name : stream_.back().names) ++times_[name];
  running_.push_back({r.keys, r.set, r.reports_done});
}

void EngineModel::act(const Skip& skip) {
  stream_.push_back({true, tensors_.at(skip.keys.front()).spec.set, 0, names_of(skip.keys), 0, {}, false, {}});
  for (const std::string& name : stream_.back().names) ++times_[name];
  running_.push_back({skip.keys});
}

void EngineModel::act(const AddSet& add) {
  sets_[add.set] = all_sets_[add.set] = add.ranks;
  set_names_[add.name] = add.set;
  running_.push_back({add.keys});
}

void EngineModel::act(const RemoveSet& remove) {
  sets_.erase(remove.set);
  joined_.erase(remove.set);
  running_.push_back({remove.keys});
}

void EngineModel::act(const Joined& joined) {
  joins_.push_back(joined);
  joined_.erase(joined.set);
  running_.push_back({joined.keys});
}

void EngineModel::act(const Fail& fail) {
  for (const std::string& name : names_of(fail.keys)) failures_.push_back({name, fail.text});
  for (const Key key : fail.keys) {
    if (tensors_.at(key).spec.kind == CollectiveKind::kJoin) joined_.erase(tensors_.at(key).spec.set);
  }
  running_.push_back({fail.keys});
}

void EngineModel::act(const Learn& learn) {
  plans_[learn.plan].keys = learn.keys;
}

void EngineModel::act(const Break& end) {
  Plan& plan = plans_.at(end.plan);
  if (plan.active) {
    break_up(plan);
    for (const Key key : plan.keys) tensors_[key].plan = 0;
  }
  plans_.erase(end.plan);
}

void EngineModel::finish_one() {
  const Running over = std::move(running_.front());
  running_.pop_front();
  for (const Key key : over.keys) {
    HORO_CHECK(tensors_[key].in_flight && tensors_[key].reported);
    tensors_[key].in_flight = false;
    --in_flight_;
    const TensorSpec& spec = tensors_[key].spec;
    if (spec.once) {
      forget(key);
    } else if (!spec.stepwise && undeclare_every_ > 0 && ++finished_ % undeclare_every_ == 0) {
      undeclared_.push_back(key);
      forget(key);
    }
  }
  if (over.reports_done) events_.emplace_back(Done{over.set, static_cast<std::uint32_t>(over.keys.size())});
}

void EngineModel::forget(Key key) {
  const TensorSpec& spec = tensors_[key].spec;
  std::erase(keys_[{spec.set, spec.name}], key);
  tensors_.erase(key);
}

int EngineModel::times(const std::string& name) const {
  const auto found = times_.find(name);
  return found == times_.end() ? 0 : found->second;
}

std::string EngineModel::in_flight() const {
  std::string text;
  for (const auto& [key, tensor] : tensors_) {
    if (tensor.in_flight) text += " '" + tensor.spec.name + (tensor.reported ? "'" : "' (not reported)");
  }
  return text;
}

}  // namespace horo
