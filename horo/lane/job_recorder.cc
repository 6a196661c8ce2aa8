#include "horo/lane/job_recorder.h"

#include <algorithm>

namespace horo {

void JobRecorder::begin(const Job& job) {
  record_.reset();
  if (timeline_ == nullptr || !timeline_->is_on()) return;
  TimelineJob& record = record_.emplace();
  record.kind = job.first().spec->kind;
  record.lane = record.kind == CollectiveKind::kSendRecv ? kTimelineMessages : job.release.set;
  record.number = job.release.number;
  record.bytes = bytes_of(*job.items);
  record.begun = Clock::now();
  record.released = std::min(std::max(job.released, TimePoint{}), record.begun);
  record.tensors.reserve(job.items->size());
  for (const Item& item : *job.items) record.tensors.push_back({item.spec->name, item.submitted});
  // The timeline was turned on while the job was in flight.
  if (record.released == TimePoint{}) record.released = record.begun;
  for (auto& tensor : record.tensors) {
    if (tensor.submitted == TimePoint{} || tensor.submitted > record.released) tensor.submitted = record.released;
  }
}

void JobRecorder::end(const Job& job) {
  if (!record_) return;
  record_->epoch = job.first().work->epoch();
  mark(Phase::kDeliver);
  TimePoint last = record_->begun;
  for (TimePoint& end : record_->ends) last = end = std::max(end, last);
  timeline_->add(std::move(*record_));
  record_.reset();
}

}  // namespace horo
