// Engine: the thread that agrees with the other ranks' engines and hands what is agreed to the lanes. It sleeps until a
// caller submits, a message comes or a timer fires; there is no cycle. What belongs to one membership of the world
// (links, lanes, coordinator) is an EpochState; the tensor_table outlives it.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "controller/coordinator.h"
#include "horo/base/config.h"
#include "horo/base/counters.h"
#include "horo/base/failure.h"
#include "horo/base/mutex.h"
#include "horo/engine/failure_detector.h"
#include "horo/engine/stall_diagnosis.h"
#include "horo/lane/lane_set.h"
#include "horo/tensors/tensor_table.h"
#include "horo/topology.h"
#include "ring/links.h"

namespace horo {

// Everything of one membership of the world, in order of construction.
struct EpochState {
  EpochState(const Config& config, Links links);
  Links links;
  Coordinator coordinator;
  FailureDetector detector;
  std::unique_ptr<Lanes> lanes;  // made once the ranks have compared their settings
};

// What outlives the engine.
struct EngineTools {
  TensorTable& tensor_table;
  Counters& counters;
  const Registry& registry;
};

class Engine {
 public:
  // Blocks until all ranks have compared their settings; throws std::invalid_argument if they differ, or PeerLost.
  Engine(const Config& config, Links links, const EngineTools& tools);
  ~Engine();

  const Topology& topology() const { return *topology_; }
  std::uint64_t kernel_bytes_sent() const;

  // Any thread; cheap.
  void wake() noexcept;
  void prepare(FilledPlan filled);
  std::shared_ptr<Group> group(std::uint32_t set) { return epoch_.lanes->group(set); }  // see Lanes
  Lane& world_lane() { return epoch_.lanes->world(); }
  // Tells the other ranks at once, then ends this one's epoch.
  void abort(const std::string& reason);
  // See Coordinator::ready_times; none after leave(). Any thread; returns after the engine's next round.
  std::vector<ReadyTime> ready_times();
  StallDiagnosis& stall_diagnosis() { return stall_diagnosis_; }
  // Leaves in good order and ends the thread; returns when it has ended. Again, or by several threads at once: the
  // same.
  void leave();

 private:
  void start();
  Verdict judge_start(const PeerLost& lost);
  void break_off(int origin, const std::string& why) noexcept;
  void loop() noexcept;
  void guard(void (Engine::*step)()) noexcept;
  void end_after_exception() noexcept;
  bool is_leaving();
  void leave_in_order();
  void round();
  void feed(const ControlEvent& event, TimePoint now);
  void take_inbox(TimePoint now);
  void tell_ready_times();
  void perform(Actions actions, std::vector<Event>& more);
  void perform(Send& send, std::vector<Event>&);
  void perform(Release& release, std::vector<Event>&);
  void perform(Skip& skip, std::vector<Event>&);
  void perform(Fail& fail, std::vector<Event>&);
  void perform(AddSet& added, std::vector<Event>&);
  void perform(RemoveSet& removed, std::vector<Event>&);
  void perform(Joined& joined, std::vector<Event>&);
  void perform(Learn& learn, std::vector<Event>&);
  void perform(Break& gone, std::vector<Event>& more);
  void perform(SetTimer& timer, std::vector<Event>&);
  void perform(Diagnose& where, std::vector<Event>& more);
  void perform(Warn& warn, std::vector<Event>&);
  void lane_failed(FailurePtr failure);
  std::string say_mine(const std::string& text) const;  // "rank 2: text"
  void heed_abort();
  void heed_lane(TimePoint now);
  void heed_deaths(TimePoint now);
  void suspect(Suspicion suspicion, TimePoint now);
  void keep_vigil(TimePoint now);
  void end_epoch(int origin, const std::string& why) noexcept;
  FailurePtr failure_of(int origin, const std::string& why) const noexcept;

  const Config config_;
  TensorTable& tensor_table_;
  Counters& counters_;
  const Registry& registry_;
  EpochState epoch_;
  const std::shared_ptr<ShmArenas> arenas_;  // null where this rank shares no memory
  std::unique_ptr<const Topology> topology_;
  StallDiagnosis stall_diagnosis_;
  Actions actions_;                    // engine thread
  std::optional<TimePoint> timer_;     // engine thread
  std::optional<TimePoint> look_;      // engine thread: when the detector wants to look again
  TimePoint tend_ = TimePoint::max();  // engine thread: when the transport wants to be looked after again
  bool ended_ = false;                 // engine thread: the epoch is over
  int dead_ = -1;                      // engine thread: the rank whose death was seen last
  // Given back before the others are told that the epoch ended, for that needs memory: it may be what is short.
  std::unique_ptr<std::byte[]> reserve_ = std::make_unique<std::byte[]>(64 << 10);  // engine thread
  // What Works fail with where there is no memory to say why the epoch ended.
  const FailurePtr no_memory_;
  Mutex mutex_;
  FailurePtr lane_failure_ GUARDED_BY(mutex_);  // not looked at yet
  std::optional<std::string> abort_reason_ GUARDED_BY(mutex_);
  bool leaving_ GUARDED_BY(mutex_) = false;
  bool gone_ GUARDED_BY(mutex_) = false;  // the thread answers no more
  bool left_ GUARDED_BY(mutex_) = false;  // it has ended
  // Not a future: std::call_once in it needs static thread-local memory, of which a process has little.
  CondVar told_;                                           // and left
  std::uint64_t curious_ GUARDED_BY(mutex_) = 0;           // calls of ready_times()
  std::uint64_t told_count_ GUARDED_BY(mutex_) = 0;        // of them answered
  std::vector<ReadyTime> ready_times_ GUARDED_BY(mutex_);  // the last answer
  std::jthread thread_;
};

}  // namespace horo
