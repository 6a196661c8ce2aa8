// One loop for all schedules. Of W slots, slot s mod W runs slice s. In each turn every slot, in ascending order, ends
// its round and begins the next one, which is the first round of its next slice when the slice is complete.
//
// There is no deadlock. Let a member wait in turn t for slot j, and let no other member wait at a smaller (t, j). The
// peers send the awaited messages at the beginning of that round, in turn t-1, directly after they end slot j's
// previous round. By assumption no member waits there any longer, so the messages have been sent.

#include "ring/algorithms/schedule_run.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>
#include <set>
#include <stdexcept>

#include "horo/base/check.h"
#include "horo/base/say.h"
#include "ring/algorithms/slices.h"
#include "ring/schedule/schedule_parts.h"

namespace horo {
namespace {

constexpr std::size_t kScratchBytes = 32 << 20;  // of all slots together; there are two slots at least
constexpr std::size_t kAlignment = 64;

std::size_t aligned(std::size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// The memory of a slot, as offsets in bytes.
struct SlotLayout {
  std::vector<std::size_t> area;                  // by scratch area
  std::size_t fed[Schedule::kFirstScratch] = {};  // with a SliceFeed: input and output of the slice
  std::size_t bytes = 0;                          // of the whole slot
};

// The state that all slots of one call of run_schedule() read.
class ScheduleRun {
 public:
  ScheduleRun(const GroupContext& context, const Collective& c, const Schedule& schedule,
              const Feeding* feeding = nullptr)
      : collective(c),
        schedule(schedule),
        feeding(feeding),
        messenger(context, c),
        slices(c, schedule, cut_of(context)) {
    element_bytes = size_of(c.dtype);
    accumulator_bytes = horo::accumulator_bytes(c.dtype, c.op);
    for (const Scratch& scratch : schedule.scratch) {
      layout.area.push_back(layout.bytes);
      const std::size_t each = scratch.accumulates || feeding != nullptr ? accumulator_bytes : element_bytes;
      const auto size = [this](int chunk) { return slices.most_elements(chunk); };
      layout.bytes += aligned(room_for(scratch, schedule.chunks, size) * each);
    }
    for (int fed = 0; feeding != nullptr && fed < Schedule::kFirstScratch; ++fed) {
      layout.fed[fed] = layout.bytes;
      layout.bytes += aligned(most_elements(feeding->chunks) * bytes_each(fed));
    }
  }

  // Whether the area holds partial results. With a SliceFeed the input is partial, so every area but the output is.
  bool is_partial(int area) const { return feeding != nullptr ? area != Schedule::kOut : accumulates(schedule, area); }
  std::size_t bytes_each(int area) const { return is_partial(area) ? accumulator_bytes : element_bytes; }

  // The slices of a SliceFeed have a fixed length.
  Cut cut_of(const GroupContext& context) const {
    return feeding != nullptr ? Cut{context.segment_bytes, context.segment_bytes}
                              : cut_by_packets(context.segment_bytes);
  }

  const Collective& collective;
  const Schedule& schedule;
  const Feeding* const feeding;  // null: input and output are the collective's buffers
  const Messenger messenger;
  const Slices slices;
  std::size_t element_bytes = 0;
  std::size_t accumulator_bytes = 0;
  SlotLayout layout;

 private:
  std::size_t most_elements(const Part& run) const {
    std::size_t elements = 0;
    for (int i = run.first; i < run.first + run.count; ++i) elements += slices.most_elements(i);
    return elements;
  }
};

// Runs one slice at a time through all rounds of the schedule.
class PipelineSlot {
 public:
  PipelineSlot(const ScheduleRun& run, std::byte* out, std::span<std::byte> scratch)
      : run_(&run), out_(out), scratch_(scratch) {
    for (const Scratch& area : run.schedule.scratch) base_.push_back(area.base);
  }

  bool is_busy() const { return busy_; }

  void begin(std::size_t slice) {
    slice_ = slice;
    round_ = 0;
    busy_ = true;
    if (run_->feeding != nullptr) run_->feeding->feed.fill_input(slice, fed(Schedule::kIn));
    begin_round();
  }

  // Ends the current round and begins the next one. Blocks. Returns true if the slice is complete.
  bool advance() {
    run_->messenger.wait(ops_);
    for (const Combine& combine : run_->schedule.rounds[round_].combine) perform(combine);
    busy_ = ++round_ < run_->schedule.rounds.size();
    if (busy_) begin_round();
    if (!busy_ && run_->feeding != nullptr) run_->feeding->feed.take_output(slice_, fed(Schedule::kOut));
    return !busy_;
  }

 private:
  std::byte* fed(int area) const { return scratch_.data() + run_->layout.fed[area]; }

  void begin_round() {
    ops_.clear();
    const Round& round = run_->schedule.rounds[round_];
    const auto number = static_cast<std::uint32_t>(slice_);
    for (const Message& message : round.receive) {
      move_base(message.part);
      each_piece(message.part, [&](const Part& piece) {
        ops_.push_back(run_->messenger.receive(message.peer, number, memory(piece)));
      });
    }
    for (const Message& message : round.send) {
      each_piece(message.part,
                 [&](const Part& piece) { ops_.push_back(run_->messenger.send(message.peer, number, memory(piece))); });
    }
  }

  // Calls f for each contiguous piece of memory of a run of chunks, except empty ones. All members have the same
  // pieces.
  template <class F>
  void each_piece(const Part& part, F f) const {
    if (run_->slices.runs_are_contiguous()) {
      if (elements(part) > 0) f(part);
      return;
    }
    for (int i = 0; i < part.count; ++i) {
      const Part one{part.area, part.first + i, 1};
      if (elements(one) > 0) f(one);
    }
  }

  std::size_t elements(const Part& part) const {
    std::size_t sum = 0;
    for (int i = 0; i < part.count; ++i) sum += run_->slices.elements(slice_, part.first + i);
    return sum;
  }

  std::span<std::byte> memory(const Part& part) const {
    return {address(part.area, part.first), elements(part) * run_->bytes_each(part.area)};
  }

  std::byte* address(int area, int chunk) const {
    const std::size_t each = run_->bytes_each(area);
    if (run_->feeding != nullptr && area < Schedule::kFirstScratch) {
      const int first = run_->feeding->chunks.first;
      return fed(area) + elements({area, first, chunk - first}) * each;
    }
    if (area == Schedule::kIn) return run_->collective.in.data + run_->slices.begin(slice_, area, chunk) * each;
    if (area == Schedule::kOut) return out_ + run_->slices.begin(slice_, area, chunk) * each;
    const auto at = static_cast<std::size_t>(area - Schedule::kFirstScratch);
    const std::size_t before = elements({area, base_[at], chunk - base_[at]});
    return scratch_.data() + run_->layout.area[at] + before * each;
  }

  // A floating area begins at the first chunk of the run that is written to it.
  void move_base(const Part& part) {
    if (part.area < Schedule::kFirstScratch) return;
    const auto at = static_cast<std::size_t>(part.area - Schedule::kFirstScratch);
    const Scratch& scratch = run_->schedule.scratch[at];
    if (scratch.base != Scratch::kFloating) return;
    const Part held = runs_.try_emplace(part.area, Part{part.area, 0, 0}).first->second;
    if (part.first >= held.first && part.first + part.count <= held.first + held.count) return;
    runs_[part.area] = part;
    base_[at] = part.first;
  }

  void perform(const Combine& combine) {
    // The addresses of the leaves are computed before move_base(), because a leaf may lie in the area that is written.
    each_piece(combine.to, [&](const Part& piece) {
      std::vector<TreeStep> tree;
      std::vector<TreeInput> inputs;
      tree.reserve(combine.tree.size());
      inputs.reserve(combine.tree.size());
      for (const int step : combine.tree) {
        tree.push_back({step == Combine::kJoin ? TreeStep::kJoin : static_cast<int>(inputs.size())});
        if (step != Combine::kJoin) inputs.push_back({address(step, piece.first), run_->is_partial(step)});
      }
      move_base(combine.to);
      reduce(piece, tree, inputs);
    });
  }

  void reduce(const Part& to, const std::vector<TreeStep>& tree, const std::vector<TreeInput>& inputs) const {
    const auto out = memory(to);
    if (!reduces(run_->collective.kind)) {
      if (out.data() != inputs.front().data) std::memmove(out.data(), inputs.front().data, out.size());
      return;
    }
    Reduction reduction{run_->collective.dtype, run_->collective.op, scaling_of(run_->collective)};
    reduction.to_partial = run_->is_partial(to.area);
    reduction.custom = run_->collective.custom;
    try {
      reduce_tree(reduction, tree, inputs, out.data(), elements(to));
    } catch (const std::runtime_error& error) {
      const std::string& what = run_->collective.what;
      throw std::runtime_error(
          say(name_of(run_->collective.kind), what.empty() ? "" : " of " + what, ": ", error.what()));
    }
  }

  const ScheduleRun* run_;
  std::byte* out_;
  std::span<std::byte> scratch_;
  std::vector<int> base_;     // by scratch area: its first chunk
  std::map<int, Part> runs_;  // by floating area: the run that it holds
  std::vector<Messenger::Op> ops_;
  std::size_t slice_ = 0;
  std::size_t round_ = 0;
  bool busy_ = false;
};

void run_slots(const ScheduleRun& run, std::byte* out, const GroupContext& context) {
  const std::size_t slices = run.slices.count();
  const std::size_t slot_bytes = std::max(kAlignment, aligned(run.layout.bytes));
  const std::size_t affordable = std::max<std::size_t>(2, kScratchBytes / slot_bytes);
  const std::size_t wanted = run.feeding != nullptr ? run.feeding->slots : std::min(affordable, context.most_slots);
  const std::size_t slots_count = std::min(slices, wanted);
  const auto scratch = context.scratch.take(slots_count * slot_bytes + kAlignment);
  const auto misaligned = reinterpret_cast<std::uintptr_t>(scratch.part(0, 1).data()) % kAlignment;
  const std::size_t first = misaligned == 0 ? 0 : kAlignment - misaligned;
  std::vector<PipelineSlot> slots;
  slots.reserve(slots_count);
  for (std::size_t i = 0; i < slots_count; ++i) {
    slots.emplace_back(run, out, scratch.part(first + i * slot_bytes, slot_bytes));
    slots.back().begin(i);
  }
  std::size_t next = slots_count;
  for (std::size_t left = slices; left > 0;) {
    for (PipelineSlot& slot : slots) {
      if (!slot.is_busy() || !slot.advance()) continue;
      --left;
      if (next < slices) slot.begin(next++);
    }
  }
}

}  // namespace

std::size_t slots_for(const std::vector<int>& hosts, const MachineCost& machine) {
  constexpr double kInsideHost = 4;
  const bool share_host = std::set<int>(hosts.begin(), hosts.end()).size() <= 1;
  if (!share_host) return kMostSlots;
  const double cores_each = machine.cores / static_cast<double>(std::max<std::size_t>(1, hosts.size()));
  if (machine.cores <= 0 || cores_each >= 1) return static_cast<std::size_t>(kInsideHost);
  return std::max<std::size_t>(1, static_cast<std::size_t>(kInsideHost * cores_each));
}

void run_schedule(const GroupContext& context, const Collective& collective, const Schedule& schedule) {
  if (schedule.rounds.empty()) return;
  const ScheduleRun run(context, collective, schedule);
  if (!needs_own_output(context, collective)) return run_slots(run, collective.out.data, context);
  const std::size_t bytes =
      elements_of_buffers(collective, context.size(), context.index).out * size_of(collective.dtype);
  const auto memory = context.scratch.take(bytes);
  const auto out = memory.part(0, bytes);
  run_slots(run, out.data(), context);
  std::memcpy(collective.out.data, out.data(), out.size());
}

void run_schedule(const GroupContext& context, const Collective& collective, const Schedule& schedule,
                  const Feeding& feeding) {
  if (!schedule.rounds.empty()) run_slots(ScheduleRun(context, collective, schedule, &feeding), nullptr, context);
}

}  // namespace horo
