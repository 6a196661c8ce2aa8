// A person asks rank 0 what the ranks wait for (`horo why`). Without a question nothing is sent and nothing wakes.

#include "horo/engine/engine.h"

namespace horo {

// The rank that is rank 0 may be another one in each epoch, and each epoch has a link of its own.
void Engine::watch_link() {
  const std::uint32_t epoch = epoch_->membership.epoch;
  if (watched_ == epoch) return;
  watched_ = epoch;
  if (rank() != 0) return;
  questions_.open(config_);
  epoch_->links.control->watch(questions_.bell());
}

void Engine::take_question(TimePoint now) {
  if (rank() != 0) return;
  const std::optional<std::uint32_t> question = questions_.next();
  if (question) epoch_->coordinator.on(AskedWhy{*question, tensor_table_.in_flight().oldest}, now, actions_);
}

void Engine::perform(Explain& answer, std::vector<Event>&) {
  questions_.answer(static_cast<std::uint32_t>(answer.question), answer.report);
}

}  // namespace horo
