#include "horo/session_waits.h"

#include <algorithm>
#include <vector>

#include "horo/engine/engine.h"
#include "horo/steps/steps.h"

namespace horo {
namespace {

// The lane in which these works end, or kAllLanes: several.
std::uint32_t lane_of(std::span<const std::shared_ptr<Work>> works) {
  if (works.empty()) return kAllLanes;
  const std::uint32_t lane = works.front()->lane();
  const bool is_one = std::ranges::all_of(works, [lane](const auto& work) { return work->lane() == lane; });
  return is_one ? lane : kAllLanes;
}

}  // namespace

SessionWaits::SessionWaits(const Config& config, const WaitContext& context)
    : context_(context), is_elastic_(config.min_np > 0), polls_for_messages_(cores_granted() >= config.local_size) {}

bool SessionWaits::wait(std::span<const std::shared_ptr<Work>> works, For what, TimePoint until) {
  const bool counts = context_.steps.is_training_thread();
  // A timeline has the waits of the training thread with its steps.
  const bool is_drawn = !context_.steps.has_training_thread() && context_.timeline.is_on();
  const bool is_timed = counts || is_drawn;
  if (counts) context_.steps.waits();
  const TimePoint begin = is_timed ? Clock::now() : TimePoint();
  const bool are_done = wait_for(works, what, until);
  if (is_timed) {
    const TimePoint end = Clock::now();
    if (counts) context_.steps.waited({begin, end, lane_of(works), are_done});
    if (is_drawn) context_.timeline.add_wait(begin, end);
  }
  if (is_elastic_ && are_done) see(works);
  return are_done;
}

bool SessionWaits::wait_stream(std::span<const std::shared_ptr<Work>> works, const CudaDevice& device, void* stream,
                               TimePoint until) {
  if (!wait(works, For::kIssue, until)) return false;
  const DeviceEvent* last = nullptr;  // the works of a bucket have one event
  bool is_held_up = false;
  for (const auto& work : works) {
    const DeviceEvent* const event = work->event().get();
    if (event == nullptr || event == last) continue;
    event->hold_up(device, stream);
    is_held_up = true;
    last = event;
  }
  if (is_held_up) context_.steps.streams_wait();
  return true;
}

// The caller knows the ranks of the epochs in which these works have ended: on all ranks the same.
void SessionWaits::see(std::span<const std::shared_ptr<Work>> works) {
  std::uint32_t epoch = 0;
  for (const auto& work : works) epoch = std::max(epoch, work->epoch());
  context_.tensor_table.see(epoch);
}

bool SessionWaits::wait_for(std::span<const std::shared_ptr<Work>> works, For what, TimePoint until) {
  const auto is_done = [what](const auto& work) { return what == For::kIssue ? work->is_issued() : work->finished(); };
  std::vector<Key> unfinished;
  for (const auto& work : works) {
    if (!work->is_issued()) unfinished.push_back(work->key());
  }
  const bool are_messages = std::ranges::all_of(works, [](const auto& work) { return work->is_message(); });
  if (!unfinished.empty() && context_.tensor_table.nudge(unfinished)) context_.engine.wake();
  const auto are_done = [&] { return std::ranges::all_of(works, is_done); };
  if (are_done()) return true;
  const std::shared_ptr<Lane> lane = context_.engine.lane_to_poll(are_messages);
  if (lane && (!are_messages || polls_for_messages_)) poll(lane->tasks(), until, are_done);
  const TimePoint now = Clock::now();
  if (now >= until || are_done()) return are_done();
  context_.callers.begin_wait(std::move(unfinished), until, now);
  if (lane && are_messages) lane->tasks().run_short_tasks(until, are_done);
  // The last work usually ends last, so this thread is woken once instead of once per work.
  const bool ended = std::all_of(works.rbegin(), works.rend(), [&](const auto& work) {
    return what == For::kIssue ? work->wait_until_issued(until) : work->wait_until(until);
  });
  context_.callers.end_wait(ended, Clock::now());
  return ended;
}

// Short tasks end sooner in this thread than in the thread of the lane, which would have to be woken.
void SessionWaits::poll(TaskQueue& tasks, TimePoint until, const std::function<bool()>& are_done) {
  tasks.begin_polling();
  brief_wait_.poll([&] { return are_done() || Clock::now() >= until || (tasks.run_short_task() && are_done()); });
  tasks.end_polling();
}

bool SessionWaits::poll(const Work& work) {
  if (work.is_issued()) return work.finished();
  const Key key = work.key();
  if (context_.tensor_table.nudge(std::span(&key, 1))) context_.engine.wake();
  return false;
}

bool SessionWaits::finish_devices(TimePoint until) {
  const auto has_ended = [until](const Item& item) { return item.work->wait_until(until); };
  return std::ranges::all_of(context_.tensor_table.issued(),
                             [&](const ItemList& items) { return std::ranges::all_of(*items, has_ended); });
}

}  // namespace horo
