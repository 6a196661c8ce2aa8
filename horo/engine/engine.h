// Engine: the thread that agrees with the engines of the other ranks on the order of collectives and hands released
// ones to the lanes. It is event-driven: it sleeps until a caller submits, a message arrives or a timer expires. The
// state of one membership of the world (links, coordinator, lanes) is an EpochState; the tensor table outlives it.
#pragma once

#include <functional>
#include <map>
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
#include "horo/base/owner.h"
#include "horo/base/patience.h"
#include "horo/base/run_questions.h"
#include "horo/base/timeline.h"
#include "horo/engine/elastic_epochs.h"
#include "horo/engine/ended_epochs.h"
#include "horo/engine/epoch_state.h"
#include "horo/engine/failure_detector.h"
#include "horo/engine/stall_diagnosis.h"
#include "horo/lane/lane_set.h"
#include "horo/steps/step_board.h"
#include "horo/steps/steps.h"
#include "horo/tensors/callers.h"
#include "horo/tensors/tensor_table.h"
#include "horo/topology.h"
#include "ring/links.h"

namespace horo {

using Reconnect = std::function<Links(std::uint32_t epoch)>;  // see session.h

// Objects that the engine uses; all of them outlive it.
struct EngineContext {
  TensorTable& tensor_table;
  Counters& counters;
  const Registry& registry;
  Callers& callers;
  Timeline& timeline;
  Steps& steps;
};

class Engine {
 public:
  struct Start {
    FirstLinks first;
    Reconnect reconnect;
    std::string terms = {};  // of a process that joins a running job
  };
  // Blocks until the startup agreement with all ranks. Throws std::invalid_argument if their settings differ, or
  // PeerLost. In an elastic job (Config::guard_fd) it goes on with the ranks that are left.
  Engine(const Config& config, const Start& how, const EngineContext& context);
  ~Engine();

  // ---- Any thread.

  // Of the latest epoch up to this one. Earlier ones are not asked for any more.
  Topology topology(std::uint32_t epoch = UINT32_MAX);
  std::vector<std::uint32_t> members(std::uint32_t epoch);  // see Membership::members
  bool can_rebuild() const { return reconnect_ != nullptr && !elastic_; }
  std::uint64_t kernel_bytes_sent() const;

  // Never blocks.
  void wake() noexcept;
  void prepack(FilledPlan filled);
  // See LaneSet. Blocks while an elastic job has no epoch.
  std::shared_ptr<Group> group(std::uint32_t set);
  // The lane of messages, or that of the world, in this epoch; it lives as long as the pointer. Null: the epoch ended
  // before it had lanes.
  std::shared_ptr<Lane> lane_to_poll(bool of_messages);
  // Sends the abort to the other ranks, then ends the epoch of this rank.
  // failure: see Session::abort.
  void abort(const std::string& reason, const std::string& failure);
  // See Coordinator::ready_times; empty after leave(). Blocks until the next iteration of the engine.
  std::vector<ReadyTime> ready_times();
  std::optional<TimePoint> notice() { return elastic_ ? elastic_->notice() : std::nullopt; }  // see Session::notice
  bool can_grow() const { return elastic_ != nullptr; }
  // See Session::joiners.
  std::vector<MemberId> joiners() { return elastic_ ? elastic_->joiners() : std::vector<MemberId>(); }
  // The guard of an elastic job.
  void tell(const MemberMessage& message) noexcept {
    if (elastic_) elastic_->tell(message);
  }
  StallDiagnosis& stall_diagnosis() { return stall_diagnosis_; }
  // Leaves the world in good order and ends the thread. Returns when it has ended, to every caller. with_process: see
  // Session::shutdown; that of the first caller counts.
  void leave(bool with_process);

 private:
  friend class ElasticEpochs;

  struct World {
    Topology topology;
    std::vector<std::uint32_t> members;
  };

  void start(const FirstLinks& first);
  std::shared_ptr<EpochState> own(std::unique_ptr<EpochState> epoch) const { return epochs_.own(std::move(epoch)); }
  std::shared_ptr<EpochState> pin() const;
  void publish(const Topology& topology);
  const World& world_of(std::uint32_t epoch) REQUIRES(epoch_mutex_);
  Topology open_lanes(EpochState& epoch);
  void rebuild();
  void leave_epoch();
  void enter_epoch(std::shared_ptr<EpochState> next);
  bool is_elastic() const { return elastic_ != nullptr; }
  bool is_frozen() const { return elastic_ && elastic_->is_frozen(); }
  void wake_epoch() noexcept;  // any thread
  void perform_pending();
  void set_between_epochs(bool between) noexcept;
  void begin_lanes(std::uint32_t epoch);
  void stop_timers();
  void end_works() noexcept;
  int rank() const { return epoch_->config.rank; }  // the engine's thread
  Verdict find_start_failure(const PeerLost& lost);
  void abort_epoch(int origin, const std::string& why) noexcept;
  void loop() noexcept;
  void guard(void (Engine::*step)()) noexcept;
  void end_after_exception() noexcept;
  bool is_leaving();
  bool leaves_with_process();
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
  std::vector<Item> take_ended(const std::vector<Key>& keys);
  void perform(Skip& skip, std::vector<Event>&);
  void perform(Fail& fail, std::vector<Event>&);
  void perform(AddSet& added, std::vector<Event>&);
  void perform(RemoveSet& removed, std::vector<Event>&);
  void perform(Joined& joined, std::vector<Event>&);
  void perform(Learn& learn, std::vector<Event>&);
  void perform(Break& broken, std::vector<Event>&);
  void perform(SetTimer& timer, std::vector<Event>&);
  void perform(Diagnose& diagnose, std::vector<Event>& more);
  void perform(Warn& warn, std::vector<Event>&);
  void perform(Explain& answer, std::vector<Event>&);
  // Questions of a person, to rank 0: engine_people.cc.
  void watch_link();
  void look_at_ways(TimePoint now);
  void tell_step(TimePoint now);
  void perform(OtherFigures& figures, std::vector<Event>&);
  void take_question(TimePoint now);
  void lane_failed(std::uint32_t epoch, FailurePtr failure);
  std::string with_rank(const std::string& text) const;  // "rank 2: text"
  void check_abort();
  void check_lanes(TimePoint now);
  void fail_by_network(const std::string& text, TimePoint now);
  void check_deaths(TimePoint now);
  void look_for_pause(TimePoint now);
  void check_silence(TimePoint now);
  void suspect(Suspicion suspicion, TimePoint now);
  void end_epoch(int origin, const std::string& why) noexcept;
  void fail_works() noexcept;
  void finish_devices();
  void lose(int origin, const std::string& why, bool is_own) noexcept;
  FailurePtr failure_of(int origin, const std::string& why) const noexcept;

  const Config config_;
  const EndedEpochs epochs_;
  TensorTable& tensor_table_;
  Counters& counters_;
  const Registry& registry_;
  Callers& callers_;
  Timeline& timeline_;
  Steps& steps_;
  JobTimes& job_times_;
  const Reconnect reconnect_;
  StallDiagnosis stall_diagnosis_;
  // Members of the engine thread:
  std::shared_ptr<EpochState> epoch_;  // other threads: pin()
  std::optional<OwnerHold> owner_hold_;
  std::optional<Item> rebuild_;  // the request that was released: the epoch ends
  Actions actions_;
  bool has_broken_plan_ = false;  // by an action: its submissions are queued
  RunQuestions questions_;
  std::optional<std::uint32_t> watched_;        // the epoch whose link watches for them
  bool tells_steps_ = false;                    // in this epoch: rank 0 is on another host
  std::uint64_t told_step_ = 0;                 // the last one
  TimePoint tells_next_;                        // not before
  std::map<std::uint32_t, StepBoard> others_;   // rank 0: of ranks of other hosts, by MemberId
  Duration way_{};                              // of a message of rank 0 to this one; 0: on one host
  TimePoint ways_due_ = TimePoint::min();       // when ways are to be looked at again
  std::optional<TimePoint> timer_;              // of the coordinator
  std::optional<TimePoint> detector_deadline_;  // of the failure detector
  Patience patience_{config_.deadline, std::max<Duration>(4 * config_.beat, std::chrono::seconds(2))};
  TimePoint transport_deadline_ = TimePoint::max();  // of the transport
  bool is_between_epochs_ = false;                   // the last one was left, the next one is not connected
  bool ended_ = false;                               // the epoch has ended
  int last_dead_ = -1;                               // the rank whose death was detected last
  // Freed before the end of the epoch is announced, which allocates: memory may be exhausted then.
  std::unique_ptr<std::byte[]> reserve_ = std::make_unique<std::byte[]>(64 << 10);

  const FailurePtr no_memory_;  // the failure of Works if no memory is left for the text of another
  mutable Mutex epoch_mutex_;
  std::shared_ptr<EpochState> shared_epoch_ GUARDED_BY(epoch_mutex_);
  std::map<std::uint32_t, World> worlds_ GUARDED_BY(epoch_mutex_);  // by epoch
  Mutex mutex_;
  CondVar changed_;                                  // of the members below, except for the first two
  std::uint32_t lane_epoch_ GUARDED_BY(mutex_) = 0;  // of lane_failure_; lanes of earlier epochs are ignored
  FailurePtr lane_failure_ GUARDED_BY(mutex_);       // not handled yet
  std::optional<std::string> abort_reason_ GUARDED_BY(mutex_);
  bool between_epochs_ GUARDED_BY(mutex_) = false;  // frozen: the next epoch will have groups again
  bool leaving_ GUARDED_BY(mutex_) = false;
  bool leaves_with_process_ GUARDED_BY(mutex_) = false;
  bool unresponsive_ GUARDED_BY(mutex_) = false;  // the thread answers no more requests
  bool left_ GUARDED_BY(mutex_) = false;          // the thread has ended
  // ready_times(): a std::future is not used because its std::call_once needs static thread-local memory, which is
  // scarce in a dlopened library.
  std::uint64_t ready_times_requested_ GUARDED_BY(mutex_) = 0;  // number of calls
  std::uint64_t ready_times_answered_ GUARDED_BY(mutex_) = 0;   // number of calls with an answer
  std::vector<ReadyTime> ready_times_ GUARDED_BY(mutex_);       // the last answer
  std::unique_ptr<ElasticEpochs> elastic_;                      // null: a static job
  std::jthread thread_;
};

}  // namespace horo
