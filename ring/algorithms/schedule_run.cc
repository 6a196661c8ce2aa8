// One loop for all schedules. Slice s runs in slot s mod W; in each turn every slot, in order, ends its round and
// begins its next one (or the first one of its next slice).
//
// No deadlock: say a member waits in turn t for slot j, and no other waits at a smaller (t, j). What it waits for is
// sent by peers when they begin that round, which they do in turn t-1 right after slot j's round before; nobody waits
// there any more, so it is on its way.

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

constexpr std::size_t kScratchBytes = 32 << 20;  // of all slots together, as long as there are two of them
constexpr std::size_t kAlignment = 64;

std::size_t aligned(std::size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// What a slice needs beside the caller's buffers: where each scratch area begins in a slot, and (fed) input and output,
// and the slot's length.
struct Layout {
  std::vector<std::size_t> area;
  std::size_t fed[Schedule::kFirstScratch] = {};
  std::size_t bytes = 0;
};

class Plan {
 public:
  Plan(const GroupContext& context, const Collective& c, const Schedule& schedule, const Feeding* feeding = nullptr)
      : collective(c),
        schedule(schedule),
        feeding(feeding),
        messenger(context, c),
        slices(c, schedule, cut_of(context)) {
    element_bytes = size_of(c.dtype);
    accumulator_bytes = size_of(accumulator_of(c.dtype, c.op));
    for (const Scratch& scratch : schedule.scratch) {
      layout.area.push_back(layout.bytes);
      layout.bytes += aligned(room_for(scratch));
    }
    for (int fed = 0; feeding != nullptr && fed < Schedule::kFirstScratch; ++fed) {
      layout.fed[fed] = layout.bytes;
      layout.bytes += aligned(most_elements(feeding->chunks) * bytes_each(fed));
    }
  }

  // Of partial results all that is on its way is partial.
  bool accumulates(int area) const {
    if (feeding != nullptr) return area != Schedule::kOut;
    return area >= Schedule::kFirstScratch &&
           schedule.scratch[static_cast<std::size_t>(area - Schedule::kFirstScratch)].accumulates;
  }
  std::size_t bytes_each(int area) const { return accumulates(area) ? accumulator_bytes : element_bytes; }

  // Those of a feed are of a given length.
  Cut cut_of(const GroupContext& context) const {
    return feeding != nullptr ? Cut{context.segment_bytes, context.segment_bytes}
                              : cut_by_packets(context.segment_bytes);
  }

  const Collective& collective;
  const Schedule& schedule;
  const Feeding* const feeding;  // null: of the collective's own buffers
  const Messenger messenger;
  const Slices slices;
  std::size_t element_bytes = 0;
  std::size_t accumulator_bytes = 0;
  Layout layout;

 private:
  std::size_t room_for(const Scratch& scratch) const {
    std::size_t most = 0;
    const std::size_t each = scratch.accumulates || feeding != nullptr ? accumulator_bytes : element_bytes;
    const int last = scratch.base == Scratch::kFloating ? schedule.chunks - scratch.chunks : scratch.base;
    for (int first = std::max(0, scratch.base); first <= last; ++first) {
      most = std::max(most, most_elements({0, first, scratch.chunks}));
    }
    return most * each;
  }
  std::size_t most_elements(const Part& run) const {
    std::size_t elements = 0;
    for (int i = run.first; i < run.first + run.count; ++i) elements += slices.most_elements(i);
    return elements;
  }
};

// A slice on its way through the rounds.
class Slot {
 public:
  Slot(const Plan& plan, std::byte* out, std::span<std::byte> scratch) : plan_(&plan), out_(out), scratch_(scratch) {
    for (const Scratch& area : plan.schedule.scratch) base_.push_back(area.base);
  }

  bool is_busy() const { return busy_; }

  void enter(std::size_t slice) {
    slice_ = slice;
    round_ = 0;
    busy_ = true;
    if (plan_->feeding != nullptr) plan_->feeding->feed.fill_input(slice, fed(Schedule::kIn));
    begin_round();
  }

  // True if the slice is through.
  bool turn() {
    plan_->messenger.wait(ops_);
    for (const Combine& combine : plan_->schedule.rounds[round_].combine) perform(combine);
    busy_ = ++round_ < plan_->schedule.rounds.size();
    if (busy_) begin_round();
    if (!busy_ && plan_->feeding != nullptr) plan_->feeding->feed.take_output(slice_, fed(Schedule::kOut));
    return !busy_;
  }

 private:
  std::byte* fed(int area) const { return scratch_.data() + plan_->layout.fed[area]; }

  void begin_round() {
    ops_.clear();
    const Round& round = plan_->schedule.rounds[round_];
    const auto number = static_cast<std::uint32_t>(slice_);
    for (const Message& message : round.receive) {
      take_base(message.part);
      each_piece(message.part, [&](const Part& piece) {
        ops_.push_back(plan_->messenger.receive(message.peer, number, memory(piece)));
      });
    }
    for (const Message& message : round.send) {
      each_piece(message.part, [&](const Part& piece) {
        ops_.push_back(plan_->messenger.send(message.peer, number, memory(piece)));
      });
    }
  }

  // The pieces of memory that a run of chunks lies in, empty ones left out; the same on all members.
  template <class F>
  void each_piece(const Part& part, F f) const {
    if (plan_->slices.runs_are_contiguous()) {
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
    for (int i = 0; i < part.count; ++i) sum += plan_->slices.elements(slice_, part.first + i);
    return sum;
  }

  std::span<std::byte> memory(const Part& part) const {
    return {address(part.area, part.first), elements(part) * plan_->bytes_each(part.area)};
  }

  std::byte* address(int area, int chunk) const {
    const std::size_t each = plan_->bytes_each(area);
    if (plan_->feeding != nullptr && area < Schedule::kFirstScratch) {
      const int first = plan_->feeding->chunks.first;
      return fed(area) + elements({area, first, chunk - first}) * each;
    }
    if (area == Schedule::kIn) return plan_->collective.in.data + plan_->slices.begin(slice_, area, chunk) * each;
    if (area == Schedule::kOut) return out_ + plan_->slices.begin(slice_, area, chunk) * each;
    const auto at = static_cast<std::size_t>(area - Schedule::kFirstScratch);
    const std::size_t before = elements({area, base_[at], chunk - base_[at]});
    return scratch_.data() + plan_->layout.area[at] + before * each;
  }

  // A floating area begins with the run that is written to it.
  void take_base(const Part& part) {
    if (part.area < Schedule::kFirstScratch) return;
    const auto at = static_cast<std::size_t>(part.area - Schedule::kFirstScratch);
    const Scratch& scratch = plan_->schedule.scratch[at];
    if (scratch.base != Scratch::kFloating) return;
    const Part run = runs_.try_emplace(part.area, Part{part.area, 0, 0}).first->second;
    if (part.first >= run.first && part.first + part.count <= run.first + run.count) return;
    runs_[part.area] = part;
    base_[at] = part.first;
  }

  void perform(const Combine& combine) {
    // The leaves may lie in the area that is written, at another base: addresses first.
    each_piece(combine.to, [&](const Part& piece) {
      std::vector<TreeStep> tree;
      std::vector<TreeInput> inputs;
      tree.reserve(combine.tree.size());
      inputs.reserve(combine.tree.size());
      for (const int step : combine.tree) {
        tree.push_back({step == Combine::kJoin ? TreeStep::kJoin : static_cast<int>(inputs.size())});
        if (step != Combine::kJoin) inputs.push_back({address(step, piece.first), plan_->accumulates(step)});
      }
      take_base(combine.to);
      reduce(piece, tree, inputs);
    });
  }

  void reduce(const Part& to, const std::vector<TreeStep>& tree, const std::vector<TreeInput>& inputs) const {
    const auto out = memory(to);
    if (!reduces(plan_->collective.kind)) {
      if (out.data() != inputs.front().data) std::memmove(out.data(), inputs.front().data, out.size());
      return;
    }
    Reduction reduction{plan_->collective.dtype, plan_->collective.op, scaling_of(plan_->collective)};
    reduction.to_partial = plan_->accumulates(to.area);
    reduction.custom = plan_->collective.custom;
    try {
      reduce_tree(reduction, tree, inputs, out.data(), elements(to));
    } catch (const std::runtime_error& error) {
      const std::string& what = plan_->collective.what;
      throw std::runtime_error(
          say(name_of(plan_->collective.kind), what.empty() ? "" : " of " + what, ": ", error.what()));
    }
  }

  const Plan* plan_;
  std::byte* out_;
  std::span<std::byte> scratch_;
  std::vector<int> base_;     // by scratch area: its first chunk
  std::map<int, Part> runs_;  // floating areas: what they hold
  std::vector<Messenger::Op> ops_;
  std::size_t slice_ = 0;
  std::size_t round_ = 0;
  bool busy_ = false;
};

void run_slots(const Plan& plan, std::byte* out, const GroupContext& context) {
  const std::size_t slices = plan.slices.count();
  const std::size_t slot_bytes = std::max(kAlignment, aligned(plan.layout.bytes));
  const std::size_t affordable = std::max<std::size_t>(2, kScratchBytes / slot_bytes);
  const std::size_t wanted = plan.feeding != nullptr ? plan.feeding->slots : std::min(affordable, context.most_slots);
  const std::size_t slots_count = std::min(slices, wanted);
  const auto scratch = context.scratch.take(slots_count * slot_bytes + kAlignment);
  const auto misaligned = reinterpret_cast<std::uintptr_t>(scratch.part(0, 1).data()) % kAlignment;
  const std::size_t first = misaligned == 0 ? 0 : kAlignment - misaligned;
  std::vector<Slot> slots;
  slots.reserve(slots_count);
  for (std::size_t i = 0; i < slots_count; ++i) {
    slots.emplace_back(plan, out, scratch.part(first + i * slot_bytes, slot_bytes));
    slots.back().enter(i);
  }
  std::size_t next = slots_count;
  for (std::size_t left = slices; left > 0;) {
    for (Slot& slot : slots) {
      if (!slot.is_busy() || !slot.turn()) continue;
      --left;
      if (next < slices) slot.enter(next++);
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
  const Plan plan(context, collective, schedule);
  if (!needs_own_output(context, collective)) return run_slots(plan, collective.out.data, context);
  const std::size_t bytes =
      elements_of_buffers(collective, context.size(), context.index).out * size_of(collective.dtype);
  const auto memory = context.scratch.take(bytes);
  const auto out = memory.part(0, bytes);
  run_slots(plan, out.data(), context);
  std::memcpy(collective.out.data, out.data(), out.size());
}

void run_schedule(const GroupContext& context, const Collective& collective, const Schedule& schedule,
                  const Feeding& feeding) {
  if (!schedule.rounds.empty()) run_slots(Plan(context, collective, schedule, &feeding), nullptr, context);
}

}  // namespace horo
