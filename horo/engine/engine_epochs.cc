// The engine's epochs. A rebuild is the change to the next one, with the same ranks: all of them end the epoch at one
// place in the stream, at the release of their rebuild, so everything released before has the same result on all of
// them. Everything else that is in flight stays in the tensor table, and is reported in the next epoch.

#include <algorithm>
#include <iterator>
#include <utility>

#include "horo/base/check.h"
#include "horo/base/log.h"
#include "horo/base/say.h"
#include "horo/engine/engine.h"
#include "horo/engine/startup_agreement.h"
#include "ring/shm/arena.h"

namespace horo {
namespace {

constexpr std::chrono::seconds kDevicePatience{10};  // NCCL takes about one to end

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

// The startup agreement of the epoch, and its lanes.
Topology Engine::open_lanes(EpochState& epoch) {
  const Config& config = epoch.config;
  StartupAgreement agreed = compare_settings(epoch.links, config, counters_);
  Members world{{}, 0, std::move(agreed.hosts), agreed.costs, epoch.links.arenas};
  for (int rank = 0; rank < config.size; ++rank) world.ranks.push_back(rank);
  epoch.lanes = std::make_unique<LaneSet>(
      LaneContext{*epoch.links.transport, tensor_table_, counters_, config, registry_, &timeline_, &job_times_},
      std::move(world),
      [this, number = epoch.membership.epoch](FailurePtr failure) { lane_failed(number, std::move(failure)); },
      [this] { wake(); });
  for (const auto& [set, ranks] : epoch.coordinator.sets()) {
    if (set != 0 && std::ranges::binary_search(ranks, config.rank)) epoch.lanes->open(set, ranks);
  }
  agreed.topology.epoch = epoch.membership.epoch;
  return agreed.topology;
}

std::shared_ptr<EpochState> Engine::pin() const {
  MutexLock lock(epoch_mutex_);
  return shared_epoch_;
}

void Engine::publish(const Topology& topology) {
  std::shared_ptr<EpochState> ended = epoch_;  // the last owner lets it go outside of the lock
  MutexLock lock(epoch_mutex_);
  shared_epoch_.swap(ended);
  worlds_[topology.epoch] = {topology, epoch_->membership.members};
}

const Engine::World& Engine::world_of(std::uint32_t epoch) {
  if (epoch == UINT32_MAX) return worlds_.rbegin()->second;  // the caller's may be an earlier one
  auto later = worlds_.upper_bound(epoch);
  const auto found = later == worlds_.begin() ? later : std::prev(later);
  worlds_.erase(worlds_.begin(), found);
  return found->second;
}

Topology Engine::topology(std::uint32_t epoch) {
  MutexLock lock(epoch_mutex_);
  return world_of(epoch).topology;
}

std::vector<std::uint32_t> Engine::members(std::uint32_t epoch) {
  MutexLock lock(epoch_mutex_);
  return world_of(epoch).members;
}

std::shared_ptr<Group> Engine::group(std::uint32_t set) {
  while (true) {
    const std::shared_ptr<EpochState> epoch = pin();
    if (auto found = epoch->lanes ? epoch->lanes->group(set) : nullptr) return found;
    MutexLock lock(mutex_);
    if (!between_epochs_ && pin() == epoch) return nullptr;
    while (between_epochs_) changed_.wait(mutex_);
  }
}

std::shared_ptr<Lane> Engine::lane_to_poll(bool of_messages) {
  const std::shared_ptr<EpochState> epoch = pin();
  if (!epoch->lanes) return nullptr;
  return {epoch, of_messages ? &epoch->lanes->messages() : &epoch->lanes->world()};
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
  // The deadlines of what the lanes still run count only while this thread looks at the clock.
  if (!epoch_->lanes->drain([this] { look_for_pause(Clock::now()); })) return;  // check_lanes() has the failure
  patience_.rest();
  const std::int64_t drained = laps.next();
  leave_epoch();
  const std::int64_t left = laps.next();
  const std::shared_ptr<EpochState> before = epoch_;
  try {
    Membership next = epoch_->membership;
    ++next.epoch;
    enter_epoch(own(std::make_unique<EpochState>(next, config_, reconnect_(next.epoch), *epoch_)));
    const std::int64_t connected = laps.next();
    publish(open_lanes(*epoch_));
    epoch_->lanes->take_residuals(*before->lanes);
    const std::int64_t agreed = laps.next();
    Outcome outcome;
    outcome.counts = {epoch_->membership.epoch, drained, left, connected, agreed};
    if (tensor_table_.begin_epoch(request)) request.work->finish(std::move(outcome));
    wake();  // callers may have woken the last epoch
    log_debug(say("rank ", rank(), " entered epoch ", epoch_->membership.epoch));
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
void Engine::enter_epoch(std::shared_ptr<EpochState> next) {
  owner_hold_.reset();
  epoch_ = std::move(next);
  is_between_epochs_ = false;
  if (elastic_) elastic_->begin_epoch();
  if (epoch_->links.arenas) owner_hold_.emplace(epoch_->links.arenas->own()->owner_word());
  actions_.clear();
  stop_timers();
  transport_deadline_ = TimePoint::max();
  last_dead_ = -1;
  rebuild_.reset();
  stall_diagnosis_.begin_epoch();
  set_check_context(rank(), epoch_->config.size, epoch_->membership.epoch);
  begin_lanes(epoch_->membership.epoch);
}

void Engine::begin_lanes(std::uint32_t epoch) {
  MutexLock lock(mutex_);
  lane_failure_ = nullptr;
  lane_epoch_ = epoch;
}

void Engine::set_between_epochs(bool between) noexcept {
  between ? job_times_.freeze(Clock::now()) : job_times_.thaw(Clock::now());
  MutexLock lock(mutex_);
  between_epochs_ = between;
  changed_.notify_all();
}

void Engine::stop_timers() {
  detector_deadline_.reset();
  patience_.rest();
  timer_.reset();
}

// After the close of the tensor table, when nothing of the epoch runs: this rank takes part no more.
void Engine::end_works() noexcept {
  ended_ = true;
  stop_timers();
  stall_diagnosis_.close();
  set_between_epochs(false);
  fail_works();
}

FailurePtr Engine::failure_of(int origin, const std::string& why) const noexcept {
  try {
    log_debug("the epoch ended: " + why);
    return peer_lost(origin, why);
  } catch (const std::bad_alloc&) {
    return no_memory_;
  }
}

// Nothing is in flight. A rank that ends at once would leave the others without the last bytes of NCCL.
void Engine::finish_devices() {
  epoch_->lanes->finish_devices(Clock::now() + kDevicePatience);
}

// An error of NCCL, which the end of another rank may have caused: better evidence may follow. NCCL may have ended what
// is on devices, and in a static job Works would end with its remains.
void Engine::fail_by_network(const std::string& text, TimePoint now) {
  elastic_ ? elastic_->nccl_failed() : tensor_table_.hold_issued();
  suspect({rank(), -1, Evidence::kBroken, text}, now);
}

// Works that were issued end when devices write no results any more: callers may free the memory then. If NCCL does not
// stop, they end all the same.
void Engine::fail_works() noexcept {
  const bool has_issued = tensor_table_.fail_all();
  if (epoch_->lanes) epoch_->lanes->works_have_failed();
  if (has_issued && epoch_->lanes) epoch_->lanes->wait_until_closed(Clock::now() + kDevicePatience);
  tensor_table_.end_failed();
}

}  // namespace horo
