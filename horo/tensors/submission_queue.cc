#include "horo/tensors/submission_queue.h"

namespace horo {
namespace {

template <class T>
void shorten(std::vector<T>& list, std::size_t size) noexcept {
  list.erase(list.begin() + static_cast<std::ptrdiff_t>(size), list.end());
}

}  // namespace

void SubmissionQueue::roll_back(const Mark& mark) noexcept {
  shorten(batch_.events, mark.events);
  shorten(batch_.items, mark.items);
  shorten(batch_.plans, mark.plans);
  single_bytes_ = mark.single_bytes;
}

void SubmissionQueue::stamp(const Mark& mark, TimePoint (*now)()) {
  if (batch_.events.size() == mark.events) return;
  const TimePoint at = now();
  for (std::size_t i = mark.events; i < batch_.events.size(); ++i) {
    Event& event = batch_.events[i];
    if (auto* submitted = std::get_if<Submitted>(&event)) submitted->at = at;
    if (auto* complete = std::get_if<PlanComplete>(&event)) complete->at = at;
    if (auto* ended = std::get_if<StepEnded>(&event)) ended->at = at;
  }
}

SubmissionBatch SubmissionQueue::take() {
  flush_requested_ = false;
  single_bytes_ = 0;
  silent_ = 0;
  return std::exchange(batch_, {});
}

}  // namespace horo
