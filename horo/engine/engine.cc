#include "horo/engine/engine.h"

#include <algorithm>

#include "horo/base/check.h"
#include "horo/base/log.h"
#include "horo/base/thread.h"
#include "horo/base/wire.h"
#include "horo/engine/startup_agreement.h"
#include "ring/os/process.h"
#include "ring/shm/arena.h"

namespace horo {
namespace {

constexpr std::chrono::milliseconds kGoodbyePatience{1'000};
constexpr std::chrono::seconds kIdle{3'600};
constexpr std::chrono::microseconds kLongestGathering{4'000};
constexpr std::chrono::microseconds kQuiet{250};

CoordinatorConfig coordinator_config(const Config& config) {
  CoordinatorConfig c;
  c.rank = config.rank;
  c.size = config.size;
  c.bucket_bytes = config.bucket_bytes;
  // Where all ranks share a host, the cores that would reduce the first buckets meanwhile are those that compute.
  c.least_bucket_bytes = config.local_size == config.size ? config.bucket_bytes : config.least_bucket_bytes;
  c.credit_bytes = config.credit_bytes;
  c.stall_warning = config.stall_warning;
  c.stall_limit = config.stall_limit;
  c.answer_timeout = config.answer_timeout;
  c.max_name_bytes = config.max_name_bytes;
  c.max_dims = config.max_dims;
  c.max_tensors = config.max_tensors;
  return c;
}

}  // namespace

EpochState::EpochState(const Config& config, Links found)
    : links(std::move(found)), coordinator(coordinator_config(config)), detector(config, links.names) {}

Engine::Engine(const Config& config, Links links, const EngineTools& tools)
    : config_(config),
      tensor_table_(tools.tensor_table),
      counters_(tools.counters),
      registry_(tools.registry),
      epoch_(config, std::move(links)),
      arenas_(epoch_.links.arenas),
      no_memory_(peer_lost(config_.rank, say_mine(out_of_memory()->text))) {
  try {
    start();
  } catch (const std::invalid_argument&) {
    throw;  // all ranks find the same
  } catch (const PeerLost& lost) {
    const Verdict verdict = judge_start(lost);
    break_off(verdict.origin, verdict.text);
    throw PeerLost(verdict.origin, verdict.text);
  } catch (const std::exception& error) {
    break_off(config_.rank, say_mine(error.what()));
    throw;
  }
}

void Engine::start() {
  StartupAgreement compared = compare_settings(epoch_.links, config_, counters_);
  topology_ = std::make_unique<const Topology>(compared.topology);
  Members world{{}, 0, std::move(compared.hosts), compared.costs, epoch_.links.arenas};
  for (int rank = 0; rank < config_.size; ++rank) world.ranks.push_back(rank);
  epoch_.lanes = std::make_unique<Lanes>(
      LaneTools{*epoch_.links.transport, tensor_table_, counters_, config_, registry_}, std::move(world),
      [this](FailurePtr failure) { lane_failed(std::move(failure)); }, [this] { wake(); });
  thread_ = start_thread("horo engine", [this] { loop(); });
}

// Nobody listens to the control link yet; it still knows best who was lost.
Verdict Engine::judge_start(const PeerLost& lost) {
  if (lost.evidence() == Evidence::kTold) return {lost.origin(), lost.what()};
  const Duration patience = config_.rank == 0 ? kVerdictDelay : kVerdictDelay + kLeaderPatience;
  for (const TimePoint until = Clock::now() + patience; Clock::now() < until;) {
    for (const ControlEvent& event : epoch_.links.control->wait(until)) {
      if (event.kind == ControlEvent::Kind::kLost) return {event.from, event.reason};
    }
  }
  return {lost.origin(), lost.what()};
}

void Engine::break_off(int origin, const std::string& why) noexcept {
  epoch_.links.control->abort(origin, why);
  epoch_.links.transport->abort(origin, why);
  if (epoch_.lanes) epoch_.lanes->stop();
}

Engine::~Engine() {
  leave();
}

std::uint64_t Engine::kernel_bytes_sent() const {
  return epoch_.links.transport->kernel_bytes_sent();
}

void Engine::wake() noexcept {
  epoch_.links.control->wake();
}

void Engine::prepare(FilledPlan filled) {
  epoch_.lanes->prepare(std::move(filled));
}

void Engine::abort(const std::string& reason) {
  std::string mine = reason;  // before the others hear of it: they must not end alone
  epoch_.links.control->abort(config_.rank, reason);
  {
    MutexLock lock(mutex_);
    abort_reason_ = std::move(mine);
  }
  wake();
}

std::vector<ReadyTime> Engine::ready_times() {
  std::uint64_t mine = 0;
  {
    MutexLock lock(mutex_);
    mine = ++curious_;
  }
  wake();
  MutexLock lock(mutex_);
  while (told_count_ < mine && !gone_) told_.wait(mutex_);
  return gone_ ? std::vector<ReadyTime>() : ready_times_;
}

void Engine::tell_ready_times() {
  std::uint64_t asked = 0;
  {
    MutexLock lock(mutex_);
    if (told_count_ == curious_) return;
    asked = curious_;
  }
  std::vector<ReadyTime> times = epoch_.coordinator.ready_times();
  MutexLock lock(mutex_);
  told_count_ = asked;
  ready_times_ = std::move(times);
  told_.notify_all();
}

void Engine::leave() {
  bool first = false;
  {
    MutexLock lock(mutex_);
    first = !std::exchange(leaving_, true);
  }
  stall_diagnosis_.close();
  wake();
  if (first) thread_.join();
  MutexLock lock(mutex_);
  left_ = left_ || first;
  told_.notify_all();
  while (!left_) told_.wait(mutex_);
}

std::string Engine::say_mine(const std::string& text) const {
  return "rank " + std::to_string(config_.rank) + ": " + text;
}

bool Engine::is_leaving() {
  MutexLock lock(mutex_);
  return leaving_;
}

// What goes wrong in this thread ends the job for all ranks, and this process's part in it; never the process.
void Engine::guard(void (Engine::*step)()) noexcept {
  try {
    (this->*step)();
  } catch (...) {
    end_after_exception();
  }
}

// In a catch block.
void Engine::end_after_exception() noexcept {
  reserve_.reset();
  try {
    end_epoch(config_.rank, say_mine(current_failure()->text));
  } catch (const std::bad_alloc&) {
    end_epoch(config_.rank, no_memory_->text);
  }
}

// The others may learn of this rank's death by this thread's, until it begins to leave in good order.
void Engine::loop() noexcept {
  std::optional<OwnerHold> life;
  if (arenas_) life.emplace(arenas_->owner_word());
  while (!is_leaving()) guard(&Engine::round);
  guard(&Engine::heed_abort);  // who aborts and leaves at once has told the reason as well
  life.reset();
  {
    MutexLock lock(mutex_);
    gone_ = true;
    told_.notify_all();
  }
  if (!ended_) guard(&Engine::leave_in_order);
  epoch_.lanes->join();
}

// Works that nobody waited for: their collectives are cut off, so that no buffer is touched after this. Once the
// tensor_table is closed nothing throws.
void Engine::leave_in_order() {
  const FailurePtr failure = shut_down("horo was shut down before this collective ended");
  const std::string text = "rank " + std::to_string(config_.rank) + " shut down";
  if (tensor_table_.close(failure)) epoch_.links.transport->abort(config_.rank, text);
  epoch_.lanes->stop();
  tensor_table_.fail_all();
  epoch_.links.transport->leave();
  epoch_.links.control->goodbye(kGoodbyePatience);
}

void Engine::round() {
  TimePoint until = std::min<TimePoint>(tend_, Clock::now() + kIdle);
  if (timer_) until = std::min(until, *timer_);
  if (look_) until = std::min(until, *look_);
  if (look_ && arenas_) until = std::min<TimePoint>(until, Clock::now() + kWaitSlice);
  if (!tensor_table_.rest()) until = TimePoint();
  std::vector<ControlEvent> events = epoch_.links.control->wait(until);
  tend_ = epoch_.links.transport->tick();
  if (events.empty()) tensor_table_.gather(Clock::now() + kLongestGathering, kQuiet);
  const TimePoint now = Clock::now();
  for (const ControlEvent& event : events) feed(event, now);
  heed_abort();
  heed_lane(now);
  heed_deaths(now);
  keep_vigil(now);
  tell_ready_times();
  if (ended_) return;
  epoch_.lanes->reap();
  take_inbox(now);
  for (const Done& done : epoch_.lanes->take_done()) epoch_.coordinator.on(done, now, actions_);
  for (const Diagnosed& answered : stall_diagnosis_.take()) epoch_.coordinator.on(answered, now, actions_);
  if (timer_ && now >= *timer_) {
    timer_.reset();
    epoch_.coordinator.on(TimerFired{}, now, actions_);
  }
  epoch_.coordinator.flush(now, actions_);
  while (!actions_.empty()) {
    std::vector<Event> more;
    perform(std::exchange(actions_, {}), more);
    for (const Event& event : more) epoch_.coordinator.on(event, now, actions_);
    if (!more.empty()) epoch_.coordinator.flush(now, actions_);
  }
}

void Engine::feed(const ControlEvent& event, TimePoint now) {
  if (ended_) return;
  if (event.kind != ControlEvent::Kind::kLost) epoch_.detector.heard(event.from);
  switch (event.kind) {
    case ControlEvent::Kind::kMessage:
      // Declarations and submissions first: the message may be about tensors that wait in the tensor_table.
      take_inbox(now);
      epoch_.coordinator.on(Received{event.from, event.bytes}, now, actions_);
      return;
    case ControlEvent::Kind::kBeat:
      if (event.wants_answer) epoch_.detector.asked(now);
      return;
    case ControlEvent::Kind::kSuspicion:
      epoch_.detector.suspect({event.from, event.about, event.evidence, event.reason}, now);
      return;
    case ControlEvent::Kind::kLeft:
      epoch_.detector.left(event.from);
      epoch_.coordinator.on(RankLeft{event.from}, now, actions_);
      return;
    case ControlEvent::Kind::kLost:
      end_epoch(event.from, event.reason);
      return;
  }
}

void Engine::take_inbox(TimePoint now) {
  TensorTable::Batch batch = tensor_table_.take();
  for (const auto& [key, spec] : batch.declared) epoch_.coordinator.declare(key, *spec);
  for (const Event& event : batch.events) epoch_.coordinator.on(event, now, actions_);
}

// The lane's thread.
void Engine::lane_failed(FailurePtr failure) {
  {
    MutexLock lock(mutex_);
    if (!lane_failure_) lane_failure_ = std::move(failure);  // of several lanes: what came first
  }
  wake();
}

void Engine::heed_abort() {
  std::optional<std::string> reason;
  {
    MutexLock lock(mutex_);
    reason = abort_reason_;
  }
  if (reason) end_epoch(config_.rank, *reason);
}

// A lane that misses somebody may miss an innocent neighbour of who is lost, so that is a suspicion: rank 0 judges. A
// death that it saw is seen here as well.
void Engine::heed_lane(TimePoint now) {
  FailurePtr failure;
  {
    MutexLock lock(mutex_);
    failure = std::move(lane_failure_);
  }
  if (!failure || ended_) return;
  if (failure->kind != Failure::Kind::kPeerLost) return end_epoch(config_.rank, say_mine(failure->text));
  if (failure->evidence == Evidence::kTold) return end_epoch(failure->origin, failure->text);
  if (failure->evidence == Evidence::kDied) return;
  suspect({config_.rank, failure->origin, failure->evidence, failure->text}, now);
}

void Engine::heed_deaths(TimePoint now) {
  const int dead = epoch_.links.transport->first_dead();
  if (dead < 0 || ended_ || std::exchange(dead_, dead) == dead) return;
  suspect({config_.rank, dead, Evidence::kDied, say_ended(config_.rank)}, now);
}

void Engine::suspect(Suspicion suspicion, TimePoint now) {
  if (config_.rank != 0) epoch_.links.control->suspect(suspicion.about, suspicion.evidence, suspicion.text);
  epoch_.detector.suspect(std::move(suspicion), now);
}

void Engine::keep_vigil(TimePoint now) {
  if (ended_) return;
  const FailureDetector::Advice advice = epoch_.detector.look(tensor_table_.has_in_flight(), now);
  look_ = advice.again;
  if (advice.ask) epoch_.links.control->beat(true);
  if (advice.verdict) end_epoch(advice.verdict->origin, advice.verdict->text);
}

// Everybody hears of it; then every Work that is in flight or comes later fails with the same words.
// Nothing in here throws: it happens once, and who waits has nobody else to tell him.
void Engine::end_epoch(int origin, const std::string& why) noexcept {
  if (std::exchange(ended_, true)) return;
  reserve_.reset();
  look_.reset();
  timer_.reset();
  stall_diagnosis_.close();
  break_off(origin, why);
  tensor_table_.close(failure_of(origin, why));
  tensor_table_.fail_all();
}

FailurePtr Engine::failure_of(int origin, const std::string& why) const noexcept {
  try {
    log_debug("the epoch ended: " + why);
    return peer_lost(origin, why);
  } catch (const std::bad_alloc&) {
    return no_memory_;
  }
}

}  // namespace horo
