// The engine's half of the coordinator's actions.

#include <algorithm>

#include "horo/base/fail_point.h"
#include "horo/base/log.h"
#include "horo/base/say.h"
#include "horo/engine/engine.h"

namespace horo {

// The goodbye of a rank that has left the epoch may come with the release of the rebuild; what it causes is void.
void Engine::perform(Actions actions, std::vector<Event>& more) {
  for (Action& action : actions) {
    if (rebuild_) return;
    std::visit([&](auto& one) { perform(one, more); }, action);
  }
}

// The coordinator counts the messages that it has applied, so what they cause is not left out.
void Engine::perform_pending() {
  std::vector<Event> more;
  perform(std::exchange(actions_, {}), more);
}

void Engine::perform(Send& send, std::vector<Event>&) {
  fail_point("engine.report");
  counters_.add_control({1, send.bytes.size(), send.has_names, send.has_bits});
  epoch_->links.control->send(send.to, std::move(send.bytes));
}

void Engine::perform(Release& release, std::vector<Event>&) {
  fail_point("engine.released");
  Job job;
  if (timeline_.is_on() || job_times_.is_on()) job.released = Clock::now();
  // Hosts have clocks of their own. Both ways of messages are taken as half of the smallest round trips.
  if (release.ready == TimePoint::min() && release.last >= 0 && job_times_.is_on()) {
    release.ready = job.released - release.hold - way_;
  }
  job.items = epoch_->pending.take(release);
  if (job.first().spec->kind == CollectiveKind::kRebuild) {
    rebuild_ = job.first();  // run_iteration() performs it
    return;
  }
  const bool is_bucket = job.first().spec->kind == CollectiveKind::kAllReduce;
  if (is_bucket) counters_.add_bucket(job.items->size(), release.key_hash);
  job.release = std::move(release);
  epoch_->lanes->run(std::move(job));
}

// Between two epochs the works of rounds stay in flight: a round runs again as a whole.
std::vector<Item> Engine::take_ended(const std::vector<Key>& keys) {
  std::vector<Item> items = epoch_->pending.take(keys);
  if (is_frozen()) std::erase_if(items, [](const Item& item) { return item.spec->round_stream != 0; });
  return items;
}

void Engine::perform(Skip& skip, std::vector<Event>&) {
  epoch_->lanes->end({.items = take_ended(skip.keys), .failure = nullptr, .absent = true});
}

void Engine::perform(Fail& fail, std::vector<Event>&) {
  FailurePtr failure = fail.lost && elastic_ ? elastic_->loss(fail.text) : mismatch(fail.text);
  epoch_->lanes->end({take_ended(fail.keys), std::move(failure)});
}

void Engine::perform(AddSet& added, std::vector<Event>&) {
  if (!is_frozen() && std::ranges::binary_search(added.ranks, rank())) epoch_->lanes->open(added.set, added.ranks);
  tensor_table_.add_set({added.set, added.name, added.ranks, -1, added.shrinks, added.by_members});
  counters_.name_set(added.set, added.name);
  log_debug(say("process set ", added.set, " (", added.name, ") has ", added.ranks.size(), " ranks"));
  epoch_->lanes->end({.items = epoch_->pending.take(added.keys), .failure = nullptr, .counts = {added.set}});
}

void Engine::perform(RemoveSet& removed, std::vector<Event>&) {
  log_debug(say("process set ", removed.set, " is removed"));
  tensor_table_.remove_set(removed.set);
  epoch_->lanes->close(removed.set, {epoch_->pending.take(removed.keys), nullptr});
}

void Engine::perform(Joined& joined, std::vector<Event>&) {
  log_debug(say("all ranks have joined in process set ", joined.set, ", rank ", joined.last, " last"));
  tensor_table_.reset_unnamed(joined.set);
  epoch_->lanes->end({.items = epoch_->pending.take(joined.keys), .failure = nullptr, .counts = {joined.last}});
}

void Engine::perform(Learn& learn, std::vector<Event>&) {
  tensor_table_.add_plan(learn.plan, learn.keys);
  log_debug(say("plan ", learn.plan, ": a bucket of ", learn.keys.size(),
                " tensors, which one bit announces from the next step on"));
}

void Engine::perform(Break& broken, std::vector<Event>&) {
  log_debug(say("plan ", broken.plan, " is dissolved: its tensors are announced one by one again"));
  tensor_table_.remove_plan(broken.plan);
  has_broken_plan_ = true;
}

void Engine::perform(SetTimer& timer, std::vector<Event>&) {
  timer_ = timer.at;
}

void Engine::perform(Diagnose& diagnose, std::vector<Event>& more) {
  if (stall_diagnosis_.ask(diagnose.question)) return;
  more.emplace_back(Diagnosed{diagnose.question, "", callers_.waits(Clock::now())});
}

void Engine::perform(Warn& warn, std::vector<Event>&) {
  log_warning(warn.text);
}

}  // namespace horo
