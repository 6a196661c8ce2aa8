// The engine's half of the tensor table.

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "horo/base/check.h"
#include "horo/tensors/tensor_table.h"

namespace horo {
namespace {

struct UnitInFlight {
  int tensors = 0;
  bool lost = false;  // one of them, and so all
};

}  // namespace

void TensorTable::add_set(SetInfo set) {
  MutexLock lock(mutex_);
  sets_.add(std::move(set));
}

void TensorTable::remove_set(std::uint32_t set) {
  MutexLock lock(mutex_);
  sets_.remove(set);
  tensors_.forget_set(set);
  rounds_.forget_set(set);
}

void TensorTable::reset_unnamed(std::uint32_t set) {
  MutexLock lock(mutex_);
  tensors_.reset_unnamed(set);
  rounds_.forget_set(set);
}

void TensorTable::add_plan(PlanId plan, const std::vector<Key>& keys) {
  MutexLock lock(mutex_);
  plans_.add(plan, keys);
}

void TensorTable::remove_plan(PlanId plan) {
  MutexLock lock(mutex_);
  plans_.remove(plan, queue_.batch());
}

SubmissionBatch TensorTable::take() {
  MutexLock lock(mutex_);
  SubmissionBatch batch = queue_.take();
  tensors_.take_changes(batch);
  return batch;
}

void TensorTable::wait_for_quiet(TimePoint until, Duration quiet) {
  MutexLock lock(mutex_);
  for (std::size_t seen = 0; queue_.size() > seen && Clock::now() < until;) {
    seen = queue_.size();
    const TimePoint pause = std::min(until, Clock::now() + quiet);
    while (!queue_.flush_requested() && Clock::now() < pause) flush_requested_.wait_until(mutex_, pause);
    if (queue_.flush_requested()) return;
  }
}

bool TensorTable::begin_sleep() {
  MutexLock lock(mutex_);
  return queue_.begin_sleep();
}

void TensorTable::retire(std::span<const Item> items) noexcept {
  MutexLock lock(mutex_);
  for (const Item& item : items) retire_one(item);
}

void TensorTable::retire_issued(const ItemList& items) {
  MutexLock lock(mutex_);
  forget_ended();
  issued_.push_back(items);
  for (const Item& item : *items) retire_one(item);
}

// Works end in the order in which they were issued, those of other lanes and devices aside.
void TensorTable::forget_ended() noexcept {
  const auto has_ended = [](const Item& item) { return item.work->finished(); };
  while (!issued_.empty() && std::ranges::all_of(*issued_.front(), has_ended)) issued_.pop_front();
}

std::vector<ItemList> TensorTable::issued() {
  MutexLock lock(mutex_);
  forget_ended();
  return {issued_.begin(), issued_.end()};
}

void TensorTable::retire_one(const Item& item) noexcept {
  TensorRecord& record = tensors_.at(item.submission.key);
  HORO_CHECK(record.is_in_flight());
  --in_flight_;
  if (is_request(record.spec.kind)) sets_.end_request(record.spec);
  item.work->end_in(epoch_);
  tensors_.retire(record);
}

// The works in flight are reported again, in the order of submission, but for those that are over: these are returned.
// `ended`: the rebuild, or null.
std::vector<Item> TensorTable::report_again(const Work* ended, const RankChange* change) {
  queue_.clear();
  plans_.clear();
  tensors_.begin_epoch();
  std::vector<Item> over;
  std::map<ScopedName, UnitInFlight> units;
  std::map<std::uint64_t, Item> in_flight;
  for (TensorRecord& record : tensors_.records()) {
    if (!record.is_in_flight()) continue;
    record.reported = true;
    const bool has_joined = change != nullptr && change->has_joined && record.spec.set == 0;
    if (change != nullptr && !can_run_again(record.spec, numbers_in(record.spec.set, *change), has_joined))
      record.lost = true;
    if (!record.spec.unit.empty()) {
      UnitInFlight& unit = units[unit_of(record.spec)];
      ++unit.tensors;
      unit.lost = unit.lost || record.lost;
    }
    const bool is_over = record.item.work.get() == ended || is_of_lost_set(record.spec);
    is_over ? over.push_back(record.item) : void(in_flight.emplace(record.serial, record.item));
  }
  const auto report_one = [&](const Item& item) REQUIRES(mutex_) {
    TensorRecord& record = tensors_.at(item.submission.key);
    if (record.spec.unit.empty()) return queue_.batch().report(item, record.lost);
    const UnitInFlight& unit = units.at(unit_of(record.spec));
    record.lost = unit.lost;
    queue_.batch().report(item, record.lost, unit.tensors < record.spec.unit_size);
  };
  rounds_.report(in_flight, report_one, queue_.batch());
  return over;
}

// Everything that may throw precedes the end of the rebuild.
bool TensorTable::begin_epoch(const Item& ended) {
  MutexLock lock(mutex_);
  if (closed_) return false;
  report_again(ended.work.get(), nullptr);
  tensors_.skip(ended.submission.key);
  ++epoch_;
  retire_one(ended);
  return true;
}

std::vector<Item> TensorTable::begin_epoch(const RankChange& change, const Work* border) {
  MutexLock lock(mutex_);
  if (closed_) return {};
  config_.rank = change.rank;
  config_.size = change.size;
  epoch_ = change.epoch;
  RankChange& now = unseen_.emplace_back(change);
  sets_.begin_epoch(now);
  tensors_.renumber_messages(0, now.rank_of);
  for (const auto& [set, numbers] : now.in_sets) tensors_.renumber_messages(set, numbers);
  std::vector<Item> over = report_again(border, &now);
  for (const Item& item : over) {
    if (item.spec->once) tensors_.skip(item.submission.key);
    retire_one(item);
  }
  return over;
}

void TensorTable::join(const RankChange& change, const JoinState& state, std::span<const std::uint32_t> members) {
  MutexLock lock(mutex_);
  config_.rank = change.rank;
  config_.size = change.size;
  epoch_ = seen_epoch_ = change.epoch;
  sets_.join(change.rank, state, members);
  tensors_.set_unnamed_of_world(state.unnamed);
}

JoinState TensorTable::for_joiners(std::span<const std::uint32_t> members, Key border) const {
  MutexLock lock(mutex_);
  JoinState state = sets_.for_joiners(members);
  state.unnamed = tensors_.unnamed_of_world(border);
  return state;
}

bool TensorTable::is_of_lost_set(const TensorSpec& spec) const {
  const bool removes = spec.kind == CollectiveKind::kRemoveSet;
  return sets_.is_lost(removes ? static_cast<std::uint32_t>(spec.shape.front()) : spec.set);
}

// The units of which a tensor is lost. The tensors of a unit are submitted together.
std::set<ScopedName> TensorTable::lost_units(std::span<const Submission> submissions) const {
  std::set<ScopedName> lost;
  if (unseen_.empty()) return lost;
  for (const Submission& submission : submissions) {
    const TensorSpec& spec = tensors_.at(submission.key).spec;
    if (!spec.unit.empty() && is_lost(spec)) lost.insert(unit_of(spec));
  }
  return lost;
}

ScopedName TensorTable::unit_of(const TensorSpec& spec) {
  return {spec.set, spec.channel, spec.unit};
}

// The numbers in a set by those in the last epoch; null: they are the same.
const std::vector<int>* TensorTable::numbers_in(std::uint32_t set, const RankChange& change) {
  if (set == 0) return &change.rank_of;
  const auto found = change.in_sets.find(set);
  return found == change.in_sets.end() ? nullptr : &found->second;
}

// Whether a caller that has not seen the last changes means other ranks than there are now.
bool TensorTable::is_lost(const TensorSpec& spec) const {
  std::vector<int> all;  // the numbers after all changes, by those before them
  bool has_changed = false, has_joined = false;
  for (const RankChange& change : unseen_) {
    has_joined = has_joined || (change.has_joined && spec.set == 0);
    const std::vector<int>* numbers = numbers_in(spec.set, change);
    if (numbers == nullptr) continue;
    if (!std::exchange(has_changed, true)) {
      all = *numbers;
      continue;
    }
    for (int& number : all) number = number < 0 ? -1 : (*numbers)[static_cast<std::size_t>(number)];
  }
  return has_changed && !can_run_again(spec, &all, has_joined);
}

// A collective runs among other ranks if it means the same: ranks that it names by number are the same processes, and
// the parts that it deals to ranks do not depend on the size of the set.
bool TensorTable::can_run_again(const TensorSpec& spec, const std::vector<int>* numbers, bool has_joined) {
  if (numbers == nullptr) return true;
  const auto is_same = [&](std::int64_t rank) {
    const bool exists = rank >= 0 && static_cast<std::size_t>(rank) < numbers->size();
    return !exists || (*numbers)[static_cast<std::size_t>(rank)] == rank;
  };
  const bool is_of_all = !has_joined && std::find(numbers->begin(), numbers->end(), -1) == numbers->end();
  switch (spec.kind) {
    case CollectiveKind::kBroadcast:
    case CollectiveKind::kReduce:
      return is_same(spec.root);
    case CollectiveKind::kAllGather:
      return spec.splits.empty() || is_of_all;
    case CollectiveKind::kGather:
      return is_same(spec.root) && (spec.splits.empty() || is_of_all);
    case CollectiveKind::kScatter:
    case CollectiveKind::kReduceScatter:
    case CollectiveKind::kAllToAll:
      return is_of_all;
    case CollectiveKind::kSendRecv:
      return is_same(spec.root) && is_same(spec.peer);
    case CollectiveKind::kAddSet:
      return std::all_of(spec.shape.begin(), spec.shape.end(), is_same);
    default:
      return true;
  }
}

bool TensorTable::has_in_flight() {
  MutexLock lock(mutex_);
  forget_ended();
  const bool are_committed = config_.min_np > 0;  // issued works: no rank needs another one for them
  return in_flight_ > 0 || (!are_committed && !issued_.empty());
}

TensorTable::InFlight TensorTable::in_flight() const {
  MutexLock lock(mutex_);
  const TensorRecord* oldest = nullptr;
  for (const TensorRecord& record : tensors_.records()) {
    if (record.is_in_flight() && (oldest == nullptr || record.serial < oldest->serial)) oldest = &record;
  }
  return {in_flight_, oldest == nullptr ? "" : oldest->spec.name};
}

void TensorTable::hold_issued() noexcept {
  MutexLock lock(mutex_);
  for (const ItemList& items : issued_) {
    for (const Item& item : *items) item.work->begin_failure(nullptr);
  }
}

bool TensorTable::close(FailurePtr failure) noexcept {
  MutexLock lock(mutex_);
  if (!closed_) closed_ = std::move(failure);
  queue_.clear();
  return in_flight_ > 0;
}

// Allocates nothing: the epoch may have ended because memory ran out.
bool TensorTable::fail_all() noexcept {
  MutexLock lock(mutex_);
  HORO_CHECK(closed_ != nullptr);
  bool has_issued = false;
  for (TensorRecord& record : tensors_.records()) {
    if (!record.is_in_flight()) continue;
    if (record.spec.device == DeviceType::kHost) {
      fail_in_flight(record);
    } else {
      has_issued = true;  // a part of it may be on the device
    }
  }
  if (config_.min_np > 0) return has_issued;  // what is issued is committed, and ends by itself
  for (const ItemList& items : issued_) {
    for (const Item& item : *items) has_issued = item.work->begin_failure(closed_) || has_issued;
  }
  return has_issued;
}

// Those that had ended stay as they are.
void TensorTable::end_failed() noexcept {
  MutexLock lock(mutex_);
  for (const ItemList& items : issued_) {
    for (const Item& item : *items) item.work->end_failed();
  }
  issued_.clear();
  for (TensorRecord& record : tensors_.records()) {
    if (record.is_in_flight()) fail_in_flight(record);
  }
}

void TensorTable::fail_in_flight(TensorRecord& record) noexcept {
  record.item.work->fail(closed_);
  record.item.work = nullptr;
  --in_flight_;
}

}  // namespace horo
