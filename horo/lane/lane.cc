#include "horo/lane/lane.h"

#include <cstdlib>
#include <utility>

#include "horo/base/log.h"
#include "horo/base/say.h"
#include "horo/base/thread.h"

namespace horo {

Lane::Lane(const LaneContext& context, Members members, std::uint32_t channel, LaneCallbacks callbacks)
    : callbacks_(std::move(callbacks)),
      runner_(context, std::move(members), channel),
      tasks_({[this](const Task& task) { run(task); }, callbacks_.failed,
              [this](const Job& job) { return runner_.is_short(job); }, [this] { runner_.finish_devices(); },
              [this] { return runner_.watch_devices(); }}),
      thread_(start_thread("horo lane", [this] {
        tasks_.run_all();
        runner_.close_devices();
      })) {}

Lane::~Lane() {
  stop();
  join();
}

// A driver may wait for a device in many calls, and the device for a rank that is lost, until the lane's thread ends
// NCCL's work on it, which it cannot do then.
void Lane::stop() {
  runner_.stop();
  const TimePoint until = Clock::now() + runner_.end_patience();
  tasks_.stop([&] {
    if (runner_.has_used_devices() && Clock::now() >= until)
      end_process("a call to a device has not returned", "the stop");
  });
}

// A thread that is in NCCL cannot be left behind: NCCL's kernels would go on in memory that is freed.
void Lane::join() {
  runner_.works_have_failed();
  if (!thread_.joinable()) return;
  if (!runner_.wait_for_end()) end_process("NCCL has not ended its work", "ncclCommAbort");
  thread_.join();
}

void Lane::end_process(const char* what, const char* since) const {
  log_error(say(what, " ", runner_.end_patience().count() / 1'000, " s after ", since, ": this process ends"));
  std::_Exit(1);
}

void Lane::prepack(FilledPlan filled) {
  if (filled.items->size() < 2 || runs_by_tensor(*filled.items->front().spec)) return;
  tasks_.push(std::move(filled));
}

void Lane::run(const Task& task) {
  std::visit([this](const auto& one) { runner_.run(one); }, task);
  const auto* job = std::get_if<Job>(&task);
  if (job == nullptr || !job->release.reports_done) return;
  done_.fetch_add(static_cast<std::uint32_t>(job->items->size()), std::memory_order_relaxed);
  callbacks_.done();
}

void Lane::settle(const std::function<bool(const Commit&)>& is_done) {
  Delivery& delivery = runner_.delivery();
  delivery.settle(is_done);
  for (const ReleasedTask& task : tasks_.take_left()) {
    if (const auto* ending = std::get_if<Ending>(&task)) delivery.settle_ending(*ending);
  }
  runner_.free_results();  // the next epoch needs as much
}

}  // namespace horo
