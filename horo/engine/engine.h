// Engine: the thread that agrees with the engines of the other ranks on the order of collectives and hands released
// ones to the lanes. It is event-driven: it sleeps until a caller submits, a message arrives or a timer expires. The
// state of one membership of the world (links, coordinator, lanes) is an EpochState; the tensor table outlives it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "controller/coordinator.h"
#include "horo/base/config.h"
#include "horo/base/counters.h"
#include "horo/base/failure.h"
#include "horo/base/mutex.h"
#include "horo/engine/failure_detector.h"
#include "horo/engine/pending_items.h"
#include "horo/engine/stall_diagnosis.h"
#include "horo/lane/lane_set.h"
#include "horo/tensors/callers.h"
#include "horo/tensors/tensor_table.h"
#include "horo/topology.h"
#include "ring/links.h"

namespace horo {

// The state of one membership of the world, in order of construction.
struct EpochState {
  EpochState(const Config& config, Links links);
  Links links;
  Coordinator coordinator;
  FailureDetector detector;
  PendingItems pending;            // items whose events the coordinator has received
  std::unique_ptr<LaneSet> lanes;  // made after the startup agreement
};

// Objects that the engine uses; all of them outlive it.
struct EngineContext {
  TensorTable& tensor_table;
  Counters& counters;
  const Registry& registry;
  Callers& callers;
};

class Engine {
 public:
  // Blocks until the startup agreement with all ranks. Throws std::invalid_argument if their settings differ, or
  // PeerLost.
  Engine(const Config& config, Links links, const EngineContext& context);
  ~Engine();

  // ---- Any thread.

  const Topology& topology() const { return *topology_; }
  std::uint64_t kernel_bytes_sent() const;

  // Never blocks.
  void wake() noexcept;
  void prepack(FilledPlan filled);
  std::shared_ptr<Group> group(std::uint32_t set) { return epoch_.lanes->group(set); }  // see LaneSet
  Lane& world_lane() { return epoch_.lanes->world(); }
  // Sends the abort to the other ranks, then ends the epoch of this rank.
  void abort(const std::string& reason);
  // See Coordinator::ready_times; empty after leave(). Blocks until the next iteration of the engine.
  std::vector<ReadyTime> ready_times();
  StallDiagnosis& stall_diagnosis() { return stall_diagnosis_; }
  // Leaves the world in good order and ends the thread. Returns when it has ended, to every caller.
  void leave();

 private:
  void start();
  Verdict find_start_failure(const PeerLost& lost);
  void abort_epoch(int origin, const std::string& why) noexcept;
  void loop() noexcept;
  void guard(void (Engine::*step)()) noexcept;
  void end_after_exception() noexcept;
  bool is_leaving();
  void leave_in_order();
  void run_iteration();
  TimePoint next_deadline() const;
  void handle(const ControlEvent& event, TimePoint now);
  void take_submissions(TimePoint now);
  void run_coordinator(TimePoint now);
  void publish_ready_times();
  void perform(Actions actions, std::vector<Event>& more);
  void perform(Send& send, std::vector<Event>&);
  void perform(Release& release, std::vector<Event>&);
  void perform(Skip& skip, std::vector<Event>&);
  void perform(Fail& fail, std::vector<Event>&);
  void perform(AddSet& added, std::vector<Event>&);
  void perform(RemoveSet& removed, std::vector<Event>&);
  void perform(Joined& joined, std::vector<Event>&);
  void perform(Learn& learn, std::vector<Event>&);
  void perform(Break& broken, std::vector<Event>& more);
  void perform(SetTimer& timer, std::vector<Event>&);
  void perform(Diagnose& diagnose, std::vector<Event>& more);
  void perform(Warn& warn, std::vector<Event>&);
  void lane_failed(FailurePtr failure);
  std::string with_rank(const std::string& text) const;  // "rank 2: text"
  void check_abort();
  void check_lanes(TimePoint now);
  void check_deaths(TimePoint now);
  void check_silence(TimePoint now);
  void suspect(Suspicion suspicion, TimePoint now);
  void end_epoch(int origin, const std::string& why) noexcept;
  FailurePtr failure_of(int origin, const std::string& why) const noexcept;

  const Config config_;
  TensorTable& tensor_table_;
  Counters& counters_;
  const Registry& registry_;
  Callers& callers_;
  EpochState epoch_;
  const std::shared_ptr<ShmArenas> arenas_;  // null if this rank shares no memory
  std::unique_ptr<const Topology> topology_;
  StallDiagnosis stall_diagnosis_;
  // Members of the engine thread:
  Actions actions_;
  std::optional<TimePoint> timer_;                   // of the coordinator
  std::optional<TimePoint> detector_deadline_;       // of the failure detector
  TimePoint transport_deadline_ = TimePoint::max();  // of the transport
  bool ended_ = false;                               // the epoch has ended
  int last_dead_ = -1;                               // the rank whose death was detected last
  // Freed before the end of the epoch is announced, which allocates: memory may be exhausted then.
  std::unique_ptr<std::byte[]> reserve_ = std::make_unique<std::byte[]>(64 << 10);

  const FailurePtr no_memory_;  // the failure of Works if no memory is left for the text of another
  Mutex mutex_;
  CondVar changed_;                             // of the members below, except for the first two
  FailurePtr lane_failure_ GUARDED_BY(mutex_);  // not handled yet
  std::optional<std::string> abort_reason_ GUARDED_BY(mutex_);
  bool leaving_ GUARDED_BY(mutex_) = false;
  bool unresponsive_ GUARDED_BY(mutex_) = false;  // the thread answers no more requests
  bool left_ GUARDED_BY(mutex_) = false;          // the thread has ended
  // ready_times(): a std::future is not used because its std::call_once needs static thread-local memory, which is
  // scarce in a dlopened library.
  std::uint64_t ready_times_requested_ GUARDED_BY(mutex_) = 0;  // number of calls
  std::uint64_t ready_times_answered_ GUARDED_BY(mutex_) = 0;   // number of calls with an answer
  std::vector<ReadyTime> ready_times_ GUARDED_BY(mutex_);       // the last answer
  std::jthread thread_;
};

}  // namespace horo
