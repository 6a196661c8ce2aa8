#include "horo/lane/lane_set.h"

#include <algorithm>
#include <utility>

#include "horo/base/check.h"

namespace horo {
namespace {

// Channel 0 is used by the startup agreement, before lanes exist.
constexpr std::uint32_t kWorldChannel = 1;
constexpr std::uint32_t kMailChannel = 2;
constexpr std::uint32_t kMail = UINT32_MAX;        // the place of the lane of messages
constexpr std::uint32_t kNoLane = UINT32_MAX - 1;  // the place of items that end in no lane

std::uint32_t channel_of(std::uint32_t set) {
  return set == 0 ? kWorldChannel : kMailChannel + set;
}

std::uint32_t place_of(const Item& item) {
  if (item.spec->kind == CollectiveKind::kSendRecv) return kMail;
  const bool is_about_sets =
      item.spec->kind == CollectiveKind::kAddSet || item.spec->kind == CollectiveKind::kRemoveSet;
  return is_about_sets ? kNoLane : item.spec->set;
}

std::unique_ptr<DeviceTurns> make_turns(const Config& config) {
  return config.gpu_backend == "host" ? nullptr : std::make_unique<DeviceTurns>();
}

LaneContext with_turns(LaneContext context, DeviceTurns* turns) {
  context.turns = turns;
  return context;
}

}  // namespace

LaneSet::LaneSet(const LaneContext& context, Members world, std::function<void(FailurePtr)> failed,
                 std::function<void()> notify)
    : turns_(make_turns(context.config)),
      context_(with_turns(context, turns_.get())),
      world_members_(std::move(world)),
      failed_(std::move(failed)),
      notify_(std::move(notify)) {
  auto lane = make(kWorldChannel, world_members_);
  auto mail = make(kMailChannel, world_members_);
  world_ = lane.get();
  messages_ = mail.get();
  MutexLock lock(mutex_);
  lanes_.emplace(0, std::move(lane));
  lanes_.emplace(kMail, std::move(mail));
}

std::unique_ptr<Lane> LaneSet::make(std::uint32_t channel, Members members) {
  const auto done = [this] {
    has_done_.store(true, std::memory_order_relaxed);
    notify_();
  };
  return std::make_unique<Lane>(context_, std::move(members), channel, LaneCallbacks{failed_, done});
}

Lane* LaneSet::find(std::uint32_t place) {
  const auto found = lanes_.find(place);
  return found == lanes_.end() ? nullptr : found->second.get();
}

void LaneSet::open(std::uint32_t set, const std::vector<int>& ranks) {
  Members members{ranks, set, {}, world_members_.costs, world_members_.arenas};
  for (const int rank : ranks) members.hosts.push_back(world_members_.hosts[static_cast<std::size_t>(rank)]);
  auto lane = make(channel_of(set), std::move(members));
  MutexLock lock(mutex_);
  HORO_CHECK(lanes_.emplace(set, std::move(lane)).second);
}

void LaneSet::run(Job job) {
  MutexLock lock(mutex_);
  Lane* lane = find(place_of(job.first()));
  HORO_CHECK(lane != nullptr);
  if (turns_ && Staging::needs(job)) job.turn = turns_->add();
  lane->tasks().push(std::move(job));
}

void LaneSet::end(Ending ending) {
  std::map<std::uint32_t, std::vector<Item>> by_place;
  for (Item& item : ending.items) by_place[place_of(item)].push_back(std::move(item));
  for (auto& [place, items] : by_place) {
    const Ending part{std::move(items), ending.failure, ending.counts, ending.absent};
    if (!end_in_lane(place, part)) end_all(context_.tensor_table, part);
  }
}

void LaneSet::fail_round(const RoundFailed& failed) {
  if (failed.begun == 0) return;
  Ending ending{{}, mismatch("this rank has given the round up: " + failed.reason)};
  ending.failed_round = {failed.stream.number, failed.begun};
  end_in_lane(failed.stream.set, ending);
}

// A closed lane may still pack items that fail now, so they end in that lane.
bool LaneSet::end_in_lane(std::uint32_t place, const Ending& ending) {
  const auto closed = closed_.find(place);
  if (closed != closed_.end()) return closed->second.lane->tasks().push(ending);
  MutexLock lock(mutex_);
  Lane* lane = find(place);
  return lane != nullptr && lane->tasks().push(ending);
}

void LaneSet::close(std::uint32_t set, const Ending& last) {
  Ending kept = last;  // both may throw, so they come first: no lane may be lost
  const auto place = closed_.try_emplace(set).first;
  {
    MutexLock lock(mutex_);
    if (const auto found = lanes_.find(set); found != lanes_.end()) {
      place->second = Closed{std::move(found->second), std::move(kept)};
      lanes_.erase(found);
    }
  }
  if (place->second.lane) return place->second.lane->tasks().close(notify_);
  closed_.erase(place);
  end_all(context_.tensor_table, last);
}

void LaneSet::reap() {
  for (auto closed = closed_.begin(); closed != closed_.end();) {
    if (!closed->second.lane->tasks().is_drained()) {
      ++closed;
      continue;
    }
    end_in_lane(kMail, closed->second.last);
    reaped_[closed->first] = closed->second.lane->completed();
    closed = closed_.erase(closed);
  }
}

// The lane of messages comes last: the last Works of removed sets end in it.
bool LaneSet::drain(const std::function<void()>& on_turn) {
  for (const auto& [set, closed] : closed_) {
    if (!closed.lane->tasks().wait_until_drained(on_turn)) return false;
  }
  reap();
  std::vector<Lane*> lanes;
  {
    MutexLock lock(mutex_);
    for (const auto& [place, lane] : lanes_) lanes.push_back(lane.get());
  }
  for (Lane* lane : lanes) lane->tasks().close([] {});
  return std::ranges::all_of(lanes, [&](Lane* lane) { return lane->tasks().wait_until_drained(on_turn); });
}

void LaneSet::finish_devices(TimePoint until) {
  if (!turns_ || !turns_->is_used()) return;
  std::vector<Lane*> lanes;
  {
    MutexLock lock(mutex_);
    for (const auto& [place, lane] : lanes_) lanes.push_back(lane.get());
  }
  for (Lane* lane : lanes) lane->tasks().close([] {});
  for (Lane* lane : lanes) {
    lane->tasks().wait_until_drained([&] {
      if (Clock::now() >= until) lane->stop();
    });
  }
}

void LaneSet::take_residuals(LaneSet& drained) {
  std::map<std::uint32_t, Lane*> before;
  {
    MutexLock lock(drained.mutex_);
    for (const auto& [place, lane] : drained.lanes_) before.emplace(place, lane.get());
  }
  MutexLock lock(mutex_);
  for (const auto& [place, lane] : lanes_) {
    if (const auto found = before.find(place); found != before.end()) lane->take_residuals(*found->second);
  }
}

void LaneSet::take_memory(LaneSet& ended) {
  MutexLock lock(mutex_);
  for (const auto& [place, lane] : lanes_) {
    if (const auto found = ended.stopped_.find(place); found != ended.stopped_.end()) lane->take_memory(*found->second);
  }
}

std::vector<Done> LaneSet::take_done() {
  std::vector<Done> all;
  if (!has_done_.exchange(false, std::memory_order_relaxed)) return all;
  MutexLock lock(mutex_);
  for (const auto& [set, lane] : lanes_) {
    if (const std::uint32_t tensors = lane->take_done(); tensors > 0) all.push_back({set, tensors});
  }
  return all;
}

// Allocates nothing: the epoch may have ended because memory ran out.
void LaneSet::stop() {
  {
    MutexLock lock(mutex_);
    stopped_.merge(lanes_);
  }
  if (turns_) turns_->stop();
  for (const auto& [place, lane] : stopped_) lane->stop();
  for (const auto& [place, closed] : closed_) closed.lane->stop();
}

void LaneSet::works_have_failed() {
  for (const auto& [place, lane] : stopped_) lane->works_have_failed();
  for (const auto& [place, closed] : closed_) closed.lane->works_have_failed();
}

// All lanes end what they have on devices at the same time: the end of one may wait for that of another, whose
// collective is before its own on the device.
void LaneSet::join() {
  works_have_failed();
  for (const auto& [place, lane] : stopped_) lane->join();
  for (const auto& [place, closed] : closed_) closed.lane->join();
}

void LaneSet::wait_until_closed(TimePoint until) {
  for (const auto& [place, lane] : stopped_) lane->wait_until_closed(until);
  for (const auto& [place, closed] : closed_) closed.lane->wait_until_closed(until);
}

std::map<std::uint32_t, std::uint64_t> LaneSet::progress() const {
  std::map<std::uint32_t, std::uint64_t> progress = reaped_;
  for (const auto& [place, lane] : stopped_) progress[place] = lane->completed();
  for (const auto& [place, closed] : closed_) progress[place] = closed.lane->completed();
  return progress;
}

void LaneSet::settle(const IsDone& is_done) {
  const auto settle_one = [&](std::uint32_t place, Lane& lane) {
    lane.settle([&](const Commit& commit) {
      return is_done(place, commit, commit.ranks.empty() ? lane.members() : commit.ranks);
    });
  };
  for (const auto& [place, lane] : stopped_) settle_one(place, *lane);
  for (const auto& [place, closed] : closed_) {
    settle_one(place, *closed.lane);
    end_all(context_.tensor_table, closed.last);
  }
  closed_.clear();
}

std::shared_ptr<Group> LaneSet::group(std::uint32_t set) {
  MutexLock lock(mutex_);
  const Lane* lane = find(set);
  return lane == nullptr ? nullptr : lane->group();
}

void LaneSet::prepack(FilledPlan filled) {
  MutexLock lock(mutex_);
  if (Lane* lane = find(place_of(filled.items->front()))) lane->prepack(std::move(filled));
}

}  // namespace horo
