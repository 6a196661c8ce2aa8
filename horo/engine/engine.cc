#include "horo/engine/engine.h"

#include <algorithm>

#include "horo/base/check.h"
#include "horo/base/fail_point.h"
#include "horo/base/log.h"
#include "horo/base/thread.h"
#include "horo/base/wire.h"
#include "horo/engine/startup_agreement.h"
#include "ring/os/process.h"
#include "ring/shm/arena.h"

namespace horo {
namespace {

constexpr std::chrono::seconds kIdle{3'600};
// Submissions that no caller waits for are collected until none arrives for kQuiet, at most for kLongestCollection.
constexpr std::chrono::microseconds kLongestCollection{4'000};
constexpr std::chrono::microseconds kQuiet{250};

}  // namespace

Engine::Engine(const Config& config, const Start& how, const EngineContext& context)
    : config_(config),
      tensor_table_(context.tensor_table),
      counters_(context.counters),
      registry_(context.registry),
      callers_(context.callers),
      timeline_(context.timeline),
      steps_(context.steps),
      job_times_(context.steps.jobs()),
      reconnect_(how.reconnect),
      no_memory_(peer_lost(config_.rank, "rank " + std::to_string(config_.rank) + ": " + out_of_memory()->text)) {
  if (config.guard_fd >= 0) {
    if (config.min_np == 0)
      throw std::invalid_argument("HORO_GUARD_FD is set and HORO_MIN_NP is 0: expected 1 or more");
    elastic_ = std::make_unique<ElasticEpochs>(*this);
    elastic_->join(how.first, how.terms);
  } else {
    start(how.first);
  }
  thread_ = start_thread("horo engine", [this] { loop(); });
}

void Engine::start(const FirstLinks& first) {
  epoch_ = own(std::make_unique<EpochState>(first_membership(config_), config_, first({})));
  try {
    publish(open_lanes(*epoch_));
    if (config_.min_np > 0) wake();  // rank 0 waits for the first report
  } catch (const std::invalid_argument&) {
    throw;  // every rank throws the same
  } catch (const PeerLost& lost) {
    const Verdict verdict = find_start_failure(lost);
    abort_epoch(verdict.origin, verdict.text);
    throw PeerLost(verdict.origin, verdict.text);
  } catch (const std::exception& error) {
    abort_epoch(config_.rank, with_rank(error.what()));
    throw;
  }
}

// The control link has the best evidence of the rank that was lost. The engine thread, which reads it, has not started.
Verdict Engine::find_start_failure(const PeerLost& lost) {
  if (lost.evidence() == Evidence::kTold) return {lost.origin(), lost.what()};
  const Duration patience = config_.rank == 0 ? kVerdictDelay : kVerdictDelay + kLeaderPatience;
  for (const TimePoint until = Clock::now() + patience; Clock::now() < until;) {
    for (const ControlEvent& event : epoch_->links.control->wait(until)) {
      if (event.kind == ControlEvent::Kind::kLost) return {event.from, event.reason};
    }
  }
  return {lost.origin(), lost.what()};
}

void Engine::abort_epoch(int origin, const std::string& why) noexcept {
  epoch_->links.control->abort(origin, why);
  epoch_->links.transport->abort(origin, why);
  if (epoch_->lanes) epoch_->lanes->stop();
}

Engine::~Engine() {
  leave(true);
}

std::uint64_t Engine::kernel_bytes_sent() const {
  return pin()->links.transport->kernel_bytes_sent();
}

void Engine::wake() noexcept {
  wake_epoch();
  if (elastic_) elastic_->wake();
}

void Engine::wake_epoch() noexcept {
  if (const std::shared_ptr<EpochState> epoch = pin()) epoch->links.control->wake();
}

void Engine::prepack(FilledPlan filled) {
  const std::shared_ptr<EpochState> epoch = pin();
  if (epoch->lanes) epoch->lanes->prepack(std::move(filled));
}

void Engine::abort(const std::string& reason, const std::string& failure) {
  std::string mine = reason;  // allocated before the abort is sent: the other ranks must not end alone
  const std::shared_ptr<EpochState> epoch = pin();
  tell(Leave{true, reason, failure});
  epoch->links.control->abort(epoch->config.rank, reason);
  {
    MutexLock lock(mutex_);
    abort_reason_ = std::move(mine);
  }
  wake();
}

std::vector<ReadyTime> Engine::ready_times() {
  std::uint64_t number = 0;
  {
    MutexLock lock(mutex_);
    number = ++ready_times_requested_;
  }
  wake();
  MutexLock lock(mutex_);
  while (ready_times_answered_ < number && !unresponsive_) changed_.wait(mutex_);
  return unresponsive_ ? std::vector<ReadyTime>() : ready_times_;
}

void Engine::publish_ready_times() {
  std::uint64_t requested = 0;
  {
    MutexLock lock(mutex_);
    if (ready_times_answered_ == ready_times_requested_) return;
    requested = ready_times_requested_;
  }
  std::vector<ReadyTime> times = epoch_->coordinator.ready_times();
  MutexLock lock(mutex_);
  ready_times_answered_ = requested;
  ready_times_ = std::move(times);
  changed_.notify_all();
}

void Engine::leave(bool with_process) {
  bool first = false;
  {
    MutexLock lock(mutex_);
    first = !std::exchange(leaving_, true);
    if (first) leaves_with_process_ = with_process;
  }
  stall_diagnosis_.close();
  wake();
  if (first) thread_.join();
  MutexLock lock(mutex_);
  left_ = left_ || first;
  changed_.notify_all();
  while (!left_) changed_.wait(mutex_);
}

std::string Engine::with_rank(const std::string& text) const {
  return "rank " + std::to_string(epoch_->config.rank) + ": " + text;
}

bool Engine::is_leaving() {
  MutexLock lock(mutex_);
  return leaving_;
}

bool Engine::leaves_with_process() {
  MutexLock lock(mutex_);
  return leaves_with_process_;
}

// An exception in this thread ends the epoch of all ranks, but not the process.
void Engine::guard(void (Engine::*step)()) noexcept {
  try {
    (this->*step)();
  } catch (...) {
    end_after_exception();
  }
}

// Called in a catch block.
void Engine::end_after_exception() noexcept {
  reserve_.reset();
  try {
    end_epoch(rank(), with_rank(current_failure()->text));
  } catch (const std::bad_alloc&) {
    end_epoch(rank(), no_memory_->text);
  }
}

// The owner word in shared memory is held until this rank starts to leave in good order: if the thread ends before, the
// other ranks detect the death of this rank.
void Engine::loop() noexcept {
  if (epoch_->links.arenas) owner_hold_.emplace(epoch_->links.arenas->own()->owner_word());
  while (!is_leaving()) guard(&Engine::run_iteration);
  patience_.rest();
  guard(&Engine::check_abort);  // of a caller that aborts and leaves at once
  owner_hold_.reset();
  {
    MutexLock lock(mutex_);
    unresponsive_ = true;
    between_epochs_ = false;
    changed_.notify_all();
  }
  if (!ended_) guard(&Engine::leave_in_order);
  if (epoch_->lanes) epoch_->lanes->join();
}

// Collectives in flight are aborted, so that no buffer is in use after this. Nothing throws after the tensor table is
// closed.
void Engine::leave_in_order() {
  const FailurePtr failure = shut_down("horo was shut down before this collective ended");
  const std::string text = "rank " + std::to_string(rank()) + " shut down";
  fail_point("shutdown.begun");
  const bool is_drained = elastic_ && elastic_->knows_notice();
  tell(Leave{false, is_drained ? kDrained : "", "", leaves_with_process()});
  fail_point("shutdown.left");
  const bool in_flight = tensor_table_.close(failure);
  if (is_frozen()) return fail_works();
  in_flight ? epoch_->links.transport->abort(rank(), text) : finish_devices();
  epoch_->lanes->stop();
  fail_works();
  epoch_->links.transport->leave();
  epoch_->links.control->goodbye(kGoodbyePatience);
}

TimePoint Engine::next_deadline() const {
  TimePoint until = std::min<TimePoint>(transport_deadline_, Clock::now() + kIdle);
  if (timer_) until = std::min(until, *timer_);
  if (detector_deadline_) until = std::min(until, *detector_deadline_);
  if (detector_deadline_ && epoch_->links.arenas) until = std::min<TimePoint>(until, Clock::now() + kWaitSlice);
  return until;
}

void Engine::run_iteration() {
  if (is_frozen()) return elastic_->wait_for_view();
  watch_link();
  const TimePoint until = tensor_table_.begin_sleep() ? next_deadline() : TimePoint();
  const std::vector<ControlEvent> events = epoch_->links.control->wait(until);
  transport_deadline_ = epoch_->links.transport->tick();
  if (events.empty()) tensor_table_.wait_for_quiet(Clock::now() + kLongestCollection, kQuiet);
  const TimePoint now = Clock::now();
  for (const ControlEvent& event : events) handle(event, now);
  if (elastic_) elastic_->take_messages();
  check_abort();
  check_lanes(now);
  check_deaths(now);
  check_silence(now);
  if (elastic_) elastic_->check_left(now);
  publish_ready_times();
  if (!ended_ && !is_frozen()) run_coordinator(now);
  if (!ended_ && !is_frozen() && rebuild_) elastic_ ? elastic_->stop_at_border() : rebuild();
}

void Engine::run_coordinator(TimePoint now) {
  epoch_->lanes->reap();
  take_submissions(now);
  take_question(now);
  for (const Done& done : epoch_->lanes->take_done()) epoch_->coordinator.on(done, now, actions_);
  for (Diagnosed& answer : stall_diagnosis_.take()) {
    answer.waits = callers_.waits(now);
    epoch_->coordinator.on(answer, now, actions_);
  }
  if (timer_ && now >= *timer_) {
    timer_.reset();
    epoch_->coordinator.on(TimerFired{}, now, actions_);
  }
  if (tells_steps_) tell_step(now);
  epoch_->coordinator.flush(now, actions_);
  while (!actions_.empty() && !rebuild_) {
    std::vector<Event> more;
    perform(std::exchange(actions_, {}), more);
    for (const Event& event : more) epoch_->coordinator.on(event, now, actions_);
    const bool has_broken_plan = std::exchange(has_broken_plan_, false);
    if (has_broken_plan) take_submissions(now);  // those of the plan, behind what was queued before them
    if (has_broken_plan || !more.empty()) epoch_->coordinator.flush(now, actions_);
  }
}

void Engine::handle(const ControlEvent& event, TimePoint now) {
  if (ended_ || is_frozen()) return;
  if (event.kind != ControlEvent::Kind::kLost) epoch_->detector.heard(event.from);
  switch (event.kind) {
    case ControlEvent::Kind::kMessage:
      // The message may be about tensors whose declarations and submissions are still queued.
      take_submissions(now);
      epoch_->coordinator.on(Received{event.from, event.bytes}, now, actions_);
      return;
    case ControlEvent::Kind::kBeat:
      if (event.wants_answer) epoch_->detector.asked(now);
      return;
    case ControlEvent::Kind::kSuspicion:
      epoch_->detector.suspect({event.from, event.about, event.evidence, event.reason}, now);
      return;
    case ControlEvent::Kind::kLeft:
      epoch_->detector.left(event.from);
      if (elastic_) return elastic_->rank_left(event.from);  // check_left() ends the epoch if the rank is needed
      epoch_->coordinator.on(RankLeft{event.from}, now, actions_);
      return;
    case ControlEvent::Kind::kLost:
      lose(event.from, event.reason, false);
      return;
  }
}

void Engine::take_submissions(TimePoint now) {
  SubmissionBatch batch = tensor_table_.take();
  if (!batch.events.empty()) fail_point("engine.submitted");
  for (const Key key : batch.undeclared) epoch_->coordinator.undeclare(key);
  for (const auto& [key, spec] : batch.declared) epoch_->coordinator.declare(key, *spec);
  epoch_->pending.add(batch);
  for (const Event& event : batch.events) {
    epoch_->coordinator.on(event, now, actions_);
    const auto* failed = is_elastic() ? std::get_if<RoundFailed>(&event) : nullptr;
    if (failed != nullptr) epoch_->lanes->fail_round(*failed);
  }
}

// Called by the thread that runs a task of the lane.
void Engine::lane_failed(std::uint32_t epoch, FailurePtr failure) {
  {
    MutexLock lock(mutex_);
    if (epoch == lane_epoch_ && !lane_failure_)
      lane_failure_ = std::move(failure);  // of several lanes: the first failure
  }
  wake();
}

void Engine::check_abort() {
  std::optional<std::string> reason;
  {
    MutexLock lock(mutex_);
    reason = abort_reason_;
  }
  if (reason) end_epoch(rank(), *reason);
}

// The peer whose bytes a lane waits for may be alive and wait for the lost rank itself, so the failure of a lane is a
// suspicion, and rank 0 decides. Deaths that a lane detects are detected by check_deaths() too.
void Engine::check_lanes(TimePoint now) {
  FailurePtr failure;
  {
    MutexLock lock(mutex_);
    failure = std::move(lane_failure_);
  }
  if (!failure || ended_ || is_frozen()) return;
  if (failure->kind != Failure::Kind::kPeerLost) return end_epoch(rank(), with_rank(failure->text));
  if (failure->evidence == Evidence::kTold) return lose(failure->origin, failure->text, false);
  if (failure->evidence == Evidence::kDied) return;
  if (failure->origin < 0) return fail_by_network(with_rank(failure->text), now);
  suspect({rank(), failure->origin, failure->evidence, failure->text}, now);
}

void Engine::check_deaths(TimePoint now) {
  const int dead = epoch_->links.transport->first_dead();
  if (dead < 0 || ended_ || is_frozen() || std::exchange(last_dead_, dead) == dead) return;
  suspect({rank(), dead, Evidence::kDied, say_ended(rank())}, now);
}

void Engine::suspect(Suspicion suspicion, TimePoint now) {
  if (rank() != 0) epoch_->links.control->suspect(suspicion.about, suspicion.evidence, suspicion.text);
  epoch_->detector.suspect(std::move(suspicion), now);
}

void Engine::look_for_pause(TimePoint now) {
  if (patience_.look(now)) epoch_->detector.was_paused(now);
}

void Engine::check_silence(TimePoint now) {
  if (ended_ || is_frozen()) return;
  look_for_pause(now);
  const FailureDetector::Advice advice = epoch_->detector.tick(tensor_table_.has_in_flight(), now);
  if (!advice.next_tick) patience_.rest();
  detector_deadline_ = advice.next_tick;
  if (advice.ask) epoch_->links.control->beat(true);
  if (advice.verdict) lose(advice.verdict->origin, advice.verdict->text, true);
}

// A rank is lost, maybe this one in the view of others. An elastic job goes on in the next epoch.
void Engine::lose(int origin, const std::string& why, bool is_own) noexcept {
  elastic_ ? elastic_->freeze(origin, why, is_own) : end_epoch(origin, why);
}

// Announces the end to all ranks. In an elastic job the end comes from this rank itself, and would come again: it
// leaves the job. Every Work in flight and every later submission fails with the same text. Nothing in here throws: it
// runs once, and waiting callers have no other way to return.
void Engine::end_epoch(int origin, const std::string& why) noexcept {
  if (ended_) return;
  if (elastic_) elastic_->fail(why);
  ended_ = true;
  reserve_.reset();
  stop_timers();
  stall_diagnosis_.close();
  if (!is_between_epochs_) abort_epoch(origin, why);
  tensor_table_.close(failure_of(origin, why));
  set_between_epochs(false);
  fail_works();
}

}  // namespace horo
