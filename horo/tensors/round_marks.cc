#include "horo/tensors/round_marks.h"

#include <algorithm>
#include <iterator>

namespace horo {

// Beyond the limit the stream in which no round began for the longest time is forgotten.
void RoundMarks::begin(const RoundBegun& begun, std::uint64_t serial) {
  Marks& marks = streams_[begun.stream];
  marks.push_back({serial, begun.round, {}});
  if (marks.size() > kMostRounds) marks.pop_front();
  if (streams_.size() <= most_streams_) return;
  const auto is_older = [](const auto& a, const auto& b) { return a.second.back().after < b.second.back().after; };
  streams_.erase(std::min_element(streams_.begin(), streams_.end(), is_older));
}

void RoundMarks::fail(const RoundFailed& failed) {
  const auto found = streams_.find(failed.stream);
  if (found != streams_.end()) found->second.back().failure = failed.reason;
}

void RoundMarks::forget_set(std::uint32_t set) {
  std::erase_if(streams_, [set](const auto& entry) { return entry.first.set == set; });
}

const RoundMarks::Mark& RoundMarks::mark_of(const Marks& marks, std::uint64_t serial) {
  const auto later =
      std::find_if(marks.begin(), marks.end(), [serial](const Mark& mark) { return mark.after >= serial; });
  return later == marks.begin() ? *later : *std::prev(later);
}

// A round's failure follows all its reports.
void RoundMarks::switch_to(const RoundStream& stream, const Mark*& current, const Mark* next, SubmissionBatch& batch) {
  if (current == next) return;
  if (current != nullptr && current->failure) batch.events.emplace_back(RoundFailed{stream, *current->failure});
  if (next != nullptr) batch.events.emplace_back(RoundBegun{stream, next->round});
  current = next;
}

void RoundMarks::report(const std::map<std::uint64_t, Item>& items, SubmissionBatch& batch) const {
  std::map<RoundStream, const Mark*> current;
  for (const auto& [serial, item] : items) {
    const RoundStream stream{item.spec->set, item.spec->round_stream};
    const auto found = streams_.find(stream);
    if (found != streams_.end()) switch_to(stream, current[stream], &mark_of(found->second, serial), batch);
    batch.report(item);
  }
  for (const auto& [stream, marks] : streams_) {
    const Mark*& last = current[stream];
    switch_to(stream, last, &marks.back(), batch);
    if (last->failure) batch.events.emplace_back(RoundFailed{stream, *last->failure});
  }
}

}  // namespace horo
