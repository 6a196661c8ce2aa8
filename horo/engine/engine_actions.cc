// What the engine does for each of the coordinator's actions.

#include <algorithm>
#include <iterator>

#include "horo/base/log.h"
#include "horo/engine/engine.h"

namespace horo {

void Engine::perform(Actions actions, std::vector<Event>& more) {
  for (Action& action : actions) {
    std::visit([&](auto& one) { perform(one, more); }, action);
  }
}

void Engine::perform(Send& send, std::vector<Event>&) {
  counters_.add_control({1, send.bytes.size(), send.has_names, send.has_bits});
  epoch_.links.control->send(send.to, std::move(send.bytes));
}

void Engine::perform(Release& release, std::vector<Event>&) {
  Job job;
  job.items = tensor_table_.items(release.keys);
  const bool is_bucket = job.items.front().spec->kind == CollectiveKind::kAllReduce;
  if (is_bucket) counters_.add_bucket(job.items.size(), release.key_hash);
  job.release = std::move(release);
  epoch_.lanes->run(std::move(job));
}

void Engine::perform(Skip& skip, std::vector<Event>&) {
  epoch_.lanes->end({.items = tensor_table_.items(skip.keys), .failure = nullptr, .absent = true});
}

void Engine::perform(Fail& fail, std::vector<Event>&) {
  epoch_.lanes->end({tensor_table_.items(fail.keys), mismatch(fail.text)});
}

void Engine::perform(AddSet& added, std::vector<Event>&) {
  if (std::ranges::binary_search(added.ranks, config_.rank)) epoch_.lanes->open(added.set, added.ranks);
  tensor_table_.add_set(added.set, added.name, added.ranks);
  counters_.name_set(added.set, added.name);
  epoch_.lanes->end({.items = tensor_table_.items(added.keys), .failure = nullptr, .counts = {added.set}});
}

void Engine::perform(RemoveSet& removed, std::vector<Event>&) {
  tensor_table_.remove_set(removed.set);
  epoch_.lanes->close(removed.set, {tensor_table_.items(removed.keys), nullptr});
}

void Engine::perform(Joined& joined, std::vector<Event>&) {
  tensor_table_.count_anew(joined.set);
  epoch_.lanes->end({.items = tensor_table_.items(joined.keys), .failure = nullptr, .counts = {joined.last}});
}

void Engine::perform(Learn& learn, std::vector<Event>&) {
  tensor_table_.learn(learn.plan, learn.keys);
}

void Engine::perform(Break& gone, std::vector<Event>& more) {
  std::ranges::move(tensor_table_.forget_plan(gone.plan), std::back_inserter(more));
}

void Engine::perform(SetTimer& timer, std::vector<Event>&) {
  timer_ = timer.at;
}

void Engine::perform(Diagnose& diagnose, std::vector<Event>& more) {
  if (!stall_diagnosis_.ask(diagnose.question)) more.emplace_back(Diagnosed{diagnose.question, ""});
}

void Engine::perform(Warn& warn, std::vector<Event>&) {
  log_warning(warn.text);
}

}  // namespace horo
