// The engine's epochs. A rebuild is the change to the next one, with the same ranks: all of them end the epoch at one
// place in the stream, at the release of their rebuild, so everything released before has the same result on all of
// them. Everything else that is in flight stays in the tensor table, and is reported in the next epoch.

#include <algorithm>
#include <utility>

#include "horo/base/check.h"
#include "horo/base/log.h"
#include "horo/base/say.h"
#include "horo/engine/engine.h"
#include "horo/engine/startup_agreement.h"
#include "ring/shm/arena.h"

namespace horo {
namespace {

// Microseconds of the parts of a rebuild.
class Laps {
 public:
  std::int64_t next() {
    const TimePoint before = std::exchange(last_, Clock::now());
    return std::chrono::duration_cast<std::chrono::microseconds>(last_ - before).count();
  }

 private:
  TimePoint last_ = Clock::now();
};

}  // namespace

// The startup agreement of the epoch, and its lanes. Then other threads see the epoch.
void Engine::open_lanes() {
  StartupAgreement agreed = compare_settings(epoch_->links, config_, counters_);
  Members world{{}, 0, std::move(agreed.hosts), agreed.costs, epoch_->links.arenas};
  for (int rank = 0; rank < config_.size; ++rank) world.ranks.push_back(rank);
  epoch_->lanes = std::make_unique<LaneSet>(
      LaneContext{*epoch_->links.transport, tensor_table_, counters_, config_, registry_}, std::move(world),
      [this](FailurePtr failure) { lane_failed(std::move(failure)); }, [this] { wake(); });
  for (const auto& [set, ranks] : epoch_->coordinator.sets()) {
    if (set != 0 && std::ranges::binary_search(ranks, config_.rank)) epoch_->lanes->open(set, ranks);
  }
  agreed.topology.epoch = epoch_->number;
  publish(agreed.topology);
}

std::shared_ptr<EpochState> Engine::pin() const {
  MutexLock lock(epoch_mutex_);
  return shared_epoch_;
}

void Engine::publish(const Topology& topology) {
  MutexLock lock(epoch_mutex_);
  shared_epoch_ = epoch_;
  topology_ = topology;
}

Topology Engine::topology() const {
  MutexLock lock(epoch_mutex_);
  return topology_;
}

std::shared_ptr<Group> Engine::group(std::uint32_t set) {
  const std::shared_ptr<EpochState> epoch = pin();
  return epoch->lanes ? epoch->lanes->group(set) : nullptr;
}

std::shared_ptr<Lane> Engine::world_lane() {
  const std::shared_ptr<EpochState> epoch = pin();
  return {epoch, epoch->lanes ? &epoch->lanes->world() : nullptr};
}

// Peers see the end of this rank's connections in good order. Its owner word is released before.
void Engine::leave_epoch() {
  is_between_epochs_ = true;
  owner_hold_.reset();
  epoch_->links.transport->leave();
  epoch_->links.control->goodbye(kGoodbyePatience);
}

void Engine::rebuild() {
  const Item request = *std::exchange(rebuild_, std::nullopt);
  Laps laps;
  if (!epoch_->lanes->drain()) return;  // check_lanes() has the failure
  const std::int64_t drained = laps.next();
  leave_epoch();
  const std::int64_t left = laps.next();
  const std::shared_ptr<EpochState> before = epoch_;
  try {
    enter_epoch(reconnect_(epoch_->number + 1));
    const std::int64_t connected = laps.next();
    open_lanes();
    epoch_->lanes->take_residuals(*before->lanes);
    const std::int64_t agreed = laps.next();
    Outcome outcome;
    outcome.counts = {epoch_->number, drained, left, connected, agreed};
    if (tensor_table_.begin_epoch(request)) request.work->finish(std::move(outcome));
    wake();  // callers may have woken the last epoch
    log_debug(say("rank ", config_.rank, " entered epoch ", epoch_->number));
  } catch (const PeerLost& lost) {
    publish(topology());  // wake() wakes this epoch
    const Verdict verdict = is_between_epochs_ ? Verdict{lost.origin(), lost.what()} : find_start_failure(lost);
    end_epoch(verdict.origin, verdict.text);
  } catch (...) {
    publish(topology());
    end_after_exception();
  }
}

// Nothing of the last epoch remains but its process sets, and the residuals of codecs.
void Engine::enter_epoch(Links links) {
  epoch_ = std::make_shared<EpochState>(config_, std::move(links), *epoch_);
  is_between_epochs_ = false;
  if (epoch_->links.arenas) owner_hold_.emplace(epoch_->links.arenas->owner_word());
  actions_.clear();
  timer_.reset();
  detector_deadline_.reset();
  transport_deadline_ = TimePoint::max();
  last_dead_ = -1;
  stall_diagnosis_.begin_epoch();
  set_check_context(config_.rank, config_.size, epoch_->number);
  MutexLock lock(mutex_);
  lane_failure_ = nullptr;
}

}  // namespace horo
