#include "horo/tensors/round_marks.h"

#include <algorithm>

namespace horo {

// Beyond the limit the stream in which no round began for the longest time is forgotten.
void RoundMarks::begin(const RoundBegun& begun, std::uint64_t serial) {
  Marks& marks = streams_[begun.stream];
  marks.push_back({serial, begun.round, {}, ++begun_});
  if (marks.size() > kMostRounds) marks.pop_front();
  if (streams_.size() <= most_streams_) return;
  const auto is_older = [](const auto& a, const auto& b) { return a.second.back().after < b.second.back().after; };
  streams_.erase(std::min_element(streams_.begin(), streams_.end(), is_older));
}

void RoundMarks::fail(RoundFailed& failed) {
  const auto found = streams_.find(failed.stream);
  if (found == streams_.end()) return;
  found->second.back().failure = failed.reason;
  failed.begun = found->second.back().number;
}

std::uint64_t RoundMarks::current(const RoundStream& stream) const {
  const auto found = stream.number == 0 ? streams_.end() : streams_.find(stream);
  return found == streams_.end() ? 0 : found->second.back().number;
}

void RoundMarks::forget_set(std::uint32_t set) {
  std::erase_if(streams_, [set](const auto& entry) { return entry.first.set == set; });
}

// The last mark before the submission; none if it is older than all of them.
RoundMarks::Current RoundMarks::mark_of(const Marks& marks, std::uint64_t serial) {
  const auto is_later = [serial](const Mark& mark) { return mark.after >= serial; };
  const auto later = std::find_if(marks.begin(), marks.end(), is_later);
  if (later == marks.begin()) return std::nullopt;
  return static_cast<std::size_t>(later - marks.begin()) - 1;
}

void RoundMarks::begin(const RoundStream& stream, const Mark& mark, SubmissionBatch& batch) {
  batch.events.emplace_back(RoundBegun{stream, mark.round});
}

// A round's failure follows all its reports.
void RoundMarks::end(const RoundStream& stream, const Mark& mark, SubmissionBatch& batch) {
  if (mark.failure) batch.events.emplace_back(RoundFailed{stream, *mark.failure, mark.number});
}

// Rounds without reports are begun only if they failed: members in such a round have to learn it.
void RoundMarks::advance(const RoundStream& stream, Current& current, std::size_t target,
                         SubmissionBatch& batch) const {
  if (current == target) return;
  const Marks& marks = streams_.at(stream);
  if (current) end(stream, marks[*current], batch);
  for (std::size_t at = current ? *current + 1 : 0; at < target; ++at) {
    if (!marks[at].failure) continue;
    begin(stream, marks[at], batch);
    end(stream, marks[at], batch);
  }
  begin(stream, marks[target], batch);
  current = target;
}

void RoundMarks::report(const std::map<std::uint64_t, Item>& items, const std::function<void(const Item&)>& report_one,
                        SubmissionBatch& batch) const {
  std::map<RoundStream, Current> current;
  for (const auto& [serial, item] : items) {
    const RoundStream stream{item.spec->set, item.spec->round_stream};
    const auto found = streams_.find(stream);
    const Current mark = found == streams_.end() ? std::nullopt : mark_of(found->second, serial);
    if (mark) advance(stream, current[stream], *mark, batch);
    report_one(item);
  }
  for (const auto& [stream, marks] : streams_) {
    advance(stream, current[stream], marks.size() - 1, batch);
    end(stream, marks.back(), batch);
  }
}

}  // namespace horo
