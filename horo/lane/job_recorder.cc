#include "horo/lane/job_recorder.h"

#include <algorithm>

namespace horo {
namespace {

std::uint32_t lane_of(const Job& job) {
  return job.first().spec->kind == CollectiveKind::kSendRecv ? kTimelineMessages : job.release.set;
}

JobTime time_of(const Job& job, bool retains, TimePoint begun) {
  JobTime time;
  time.lane = lane_of(job);
  time.last = job.release.last;
  time.commits = retains;
  time.ready = job.release.ready;
  time.begun = begun;
  time.released = job.released == TimePoint{} ? begun : std::min(job.released, begun);
  return time;
}

}  // namespace

JobRecorder::JobRecorder(const RecordContext& context)
    : context_{context.timeline, context.times != nullptr && context.times->is_on() ? context.times : nullptr,
               context.retains} {}

JobRecorder::~JobRecorder() {
  if (context_.times != nullptr) context_.times->close(this, Clock::now());
}

void JobRecorder::begin(const Job& job) {
  record_.reset();
  const bool has_timeline = context_.timeline != nullptr && context_.timeline->is_on();
  is_timed_ = has_timeline || context_.times != nullptr;
  if (!is_timed_) return;
  const TimePoint now = Clock::now();
  if (context_.times != nullptr) context_.times->begin(this, time_of(job, context_.retains, now));
  if (has_timeline) begin_in_timeline(job, now);
}

void JobRecorder::begin_in_timeline(const Job& job, TimePoint now) {
  TimelineJob& record = record_.emplace();
  record.kind = job.first().spec->kind;
  record.lane = lane_of(job);
  record.number = job.release.number;
  record.bytes = bytes_of(*job.items);
  record.begun = now;
  record.released = std::min(std::max(job.released, TimePoint{}), record.begun);
  record.tensors.reserve(job.items->size());
  for (const Item& item : *job.items) record.tensors.push_back({item.spec->name, item.submitted});
  // The timeline was turned on while the job was in flight.
  if (record.released == TimePoint{}) record.released = record.begun;
  for (auto& tensor : record.tensors) {
    if (tensor.submitted == TimePoint{} || tensor.submitted > record.released) tensor.submitted = record.released;
  }
}

void JobRecorder::mark(Phase phase) {
  if (!is_timed_) return;
  const TimePoint now = Clock::now();
  if (context_.times != nullptr) context_.times->mark(this, phase, now);
  if (record_) record_->ends[static_cast<std::size_t>(phase)] = now;
}

void JobRecorder::moved_by(std::string_view algorithm, const Traffic& traffic) {
  if (!record_) return;
  record_->algorithm = algorithm;
  record_->traffic = traffic;
}

void JobRecorder::end(const Job& job) {
  if (!is_timed_) return;
  const TimePoint now = Clock::now();
  const std::uint32_t epoch = job.first().work->epoch();
  if (context_.times != nullptr) context_.times->end(this, epoch, now);
  if (!record_) return;
  record_->epoch = epoch;
  record_->ends.back() = now;
  TimePoint last = record_->begun;
  for (TimePoint& end : record_->ends) last = end = std::max(end, last);
  context_.timeline->add(std::move(*record_));
  record_.reset();
}

}  // namespace horo
