// The C ABI: where the time of each step goes.
#include <algorithm>
#include <array>
#include <vector>

#include "bindings/c/handles.h"

using horo_c::check_struct;
using horo_c::checked;
using horo_c::guarded;

namespace {

std::vector<horo::StepMark> marks_of(const int64_t* marks, std::uint32_t count) {
  if (marks == nullptr && count > 0) throw std::invalid_argument("marks is a null pointer");
  std::vector<horo::StepMark> found(count);
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::int64_t code = marks[2 * std::size_t{i}];
    if (code < 0 || code >= 2 * static_cast<std::int64_t>(horo::kMarkKinds)) {
      throw std::invalid_argument("mark " + std::to_string(code) + ": expected 0 to 9");
    }
    const horo::TimePoint at{std::chrono::nanoseconds(marks[2 * std::size_t{i} + 1])};
    found[i] = {static_cast<horo::MarkKind>(code / 2), code % 2 != 0, at};
  }
  return found;
}

void fill(const horo::StepRecord& record, horo_step& step) {
  step.known = record.known;
  step.number = record.number;
  step.stream = record.stream;
  step.begin_ns = std::chrono::nanoseconds(record.begin.time_since_epoch()).count();
  step.time_ns = std::chrono::nanoseconds(record.end - record.begin).count();
  for (std::size_t bar = 0; bar < horo::kBars; ++bar) step.bars_ns[bar] = record.bars[bar].count();
  step.hidden_transfer_ns = record.hidden_transfer_ns;
  step.hidden_copies_ns = record.hidden_copies_ns;
  step.gc_ns = record.gc_ns;
  step.cpu_ns = record.cpu_ns;
  step.run_queue_ns = record.run_queue_ns;
  step.samples = record.samples;
  step.work = record.work;
  step.switches = record.switches;
  step.epoch = record.epoch;
  step.flags = record.flags;
  for (std::size_t i = 0; i < horo::StepRecord::kLateRanks; ++i) {
    step.late_ranks[i] = record.late_ranks[i];
    step.late_ns[i] = record.late_skews[i].count();
  }
}
static_assert(horo::kBars == HORO_BARS && horo::StepRecord::kLateRanks == HORO_LATE_RANKS);

}  // namespace

int32_t horo_end_step(horo_session* session, const horo_ended_step* end) {
  return guarded([&]() -> std::int32_t {
    const horo::TimePoint now = horo::Clock::now();
    check_struct(end, "horo_ended_step");
    horo::StepEnd step;
    step.at = now;
    step.stream = end->stream;
    step.samples = end->samples;
    step.work = end->work;
    step.kinds = end->kinds;
    step.is_in_forward = (end->flags & HORO_STEP_IN_FORWARD) != 0;
    step.waits_elsewhere = (end->flags & HORO_STEP_WAITS_ELSEWHERE) != 0;
    checked(session).session.steps().end(step, marks_of(end->marks, end->mark_count));
    return HORO_OK;
  });
}

int32_t horo_add_marks(horo_session* session, const int64_t* marks, uint32_t count) {
  return guarded([&]() -> std::int32_t {
    checked(session).session.steps().add(marks_of(marks, count));
    return HORO_OK;
  });
}

int32_t horo_record_mark(horo_session* session, uint32_t mark, const horo_stream* stream) {
  return guarded([&]() -> std::int32_t {
    check_struct(stream, "horo_stream");
    checked(session).session.record_mark(mark, stream->device, stream->stream);
    return HORO_OK;
  });
}

int32_t horo_end_round(horo_session* session, uint32_t set) {
  return guarded([&]() -> std::int32_t {
    checked(session).session.end_round(set);
    return HORO_OK;
  });
}

int32_t horo_last_step(horo_session* session, horo_step* step) {
  return horo_get_steps(session, step, 1);
}

int32_t horo_get_steps(horo_session* session, horo_step* steps, size_t count) {
  return guarded([&]() -> std::int32_t {
    if (count == 0) return 0;
    check_struct(steps, "horo_step");
    const std::uint32_t struct_bytes = steps->struct_bytes;
    const std::vector<horo::StepRecord> last = checked(session).session.steps().last(count);
    auto* bytes = reinterpret_cast<std::byte*>(steps);  // a caller's struct may be longer
    for (const horo::StepRecord& record : last) {
      auto& step = *reinterpret_cast<horo_step*>(bytes);
      step.struct_bytes = struct_bytes;
      fill(record, step);
      bytes += struct_bytes;
    }
    return static_cast<std::int32_t>(last.size());
  });
}
