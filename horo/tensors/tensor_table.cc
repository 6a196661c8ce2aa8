#include "horo/tensors/tensor_table.h"

#include <algorithm>
#include <optional>
#include <set>
#include <stdexcept>

#include "horo/base/check.h"
#include "horo/tensors/spec_check.h"

namespace horo {

namespace {

// Two pairs of ranks may use one name at once, so a message is named after its pair as well.
std::string pair_of(const TensorSpec& spec) {
  if (spec.kind != CollectiveKind::kSendRecv) return "";
  return " (" + std::to_string(spec.root) + " to " + std::to_string(spec.peer) + ")";
}

bool asks(CollectiveKind kind) {
  return kind == CollectiveKind::kAddSet || kind == CollectiveKind::kRemoveSet || kind == CollectiveKind::kJoin;
}

}  // namespace

TensorTable::TensorTable(const Config& config, const Registry& registry)
    : config_(config), registry_(registry), sets_(config) {}

// What is not read on this rank must not make two specs different.
TensorTable::Named TensorTable::named(const TensorSpec& spec) {
  Named named{spec, nullptr};
  if (spec.kind != CollectiveKind::kSendRecv) named.spec.peer = -1;
  if (spec.kind == CollectiveKind::kSendRecv || spec.kind == CollectiveKind::kBarrier) named.spec.priority = 0;
  if (spec.kind == CollectiveKind::kScatter && sets_.find(spec.set).rank != spec.root) named.spec.shape.front() = 0;
  if (spec.name.empty()) {
    const std::string sort = std::string(name_of(spec.kind));
    named.counter = &unnamed_[{spec.set, spec.channel, sort + pair_of(spec)}];
    named.spec.name = sort + "#" + std::to_string(*named.counter);
  }
  named.spec.name += pair_of(spec);
  if (named.spec.name.size() > config_.max_name_bytes) {
    throw std::invalid_argument("the name '" + named.spec.name.substr(0, 200) + "' has " +
                                std::to_string(named.spec.name.size()) + " bytes, at most " +
                                std::to_string(config_.max_name_bytes) + " are allowed (HORO_MAX_NAME_BYTES)");
  }
  return named;
}

Key TensorTable::declare(const TensorSpec& spec) {
  MutexLock lock(mutex_);
  if (closed_) closed_->raise();
  check_spec(spec, sets_.find_mine(spec.set), config_, registry_);
  const Named one = named(spec);
  const Key key = find_or_add(one.spec);
  if (one.counter != nullptr) ++*one.counter;
  return key;
}

Key TensorTable::find_or_add(const TensorSpec& spec) {
  const NameKey name{spec.set, spec.channel, spec.name};
  if (const auto found = names_.find(name); found != names_.end()) {
    for (const Key key : found->second.keys) {
      if (tensors_[key].spec == spec) return key;
    }
  }
  check_room(1, spec.once);
  return add(spec, names_.try_emplace(name).first);
}

void TensorTable::check_room(std::size_t tensors, bool once) const {
  if (tensors_.size() + tensors <= config_.max_tensors + (once ? free_keys_.size() : 0)) return;
  throw std::invalid_argument(std::to_string(tensors_.size()) +
                              " tensors are declared already, no more are allowed (HORO_MAX_TENSORS)");
}

// A tensor that the engine was not told of must not be found by its name, so what may throw comes first. A name without
// tensors, which may be left behind then, is as good as none.
Key TensorTable::add(const TensorSpec& spec, Names::iterator place) {
  const bool again = spec.once && !free_keys_.empty();
  const Key key = again ? free_keys_.back() : static_cast<Key>(tensors_.size());
  std::optional<Tensor> fresh;
  Tensor& tensor = again ? tensors_[key] : fresh.emplace();
  if (again) tensor = Tensor{};
  tensor.bytes = asks(spec.kind) ? 0 : spec.bytes();
  tensor.plain = spec.kind == CollectiveKind::kAllReduce;
  tensor.set = spec.set;
  tensor.spec = spec;
  make_room(place->second.keys, 1);
  make_room(declared_, 1);
  if (again) {
    free_keys_.pop_back();
  } else {
    if (spec.once) make_room(free_keys_, tensors_.size() + 1);  // it is empty
    tensors_.push_back(std::move(*fresh));
  }
  Tensor& added = again ? tensor : tensors_.back();
  added.name = &place->second;
  added.place = place;
  place->second.keys.push_back(key);
  declared_.push_back(key);
  return key;
}

// The spec's set, where this rank may submit to it.
const SetInfo& TensorTable::open_set(const TensorSpec& spec) const {
  const SetInfo& set = sets_.find_mine(spec.set);
  if (!sets_.has_joined(spec.set)) return set;
  throw std::invalid_argument(subject_of(spec, set) + ": rank " + std::to_string(config_.rank) + " has joined " +
                              describe(set) + ", and submits nothing to it until all others have joined");
}

void TensorTable::check_in_flight(const TensorSpec& spec) const {
  const auto found = names_.find({spec.set, spec.channel, spec.name});
  if (found == names_.end() || !found->second.in_flight) return;
  throw std::invalid_argument(subject_of(spec, sets_.find(spec.set)) +
                              ": a tensor of that name is in flight already; wait for it, or choose another name");
}

void TensorTable::check(std::span<const Submission> submissions) {
  std::optional<std::uint32_t> open;  // the set of the last one
  for (const Submission& s : submissions) {
    if (s.key >= tensors_.size() || tensors_[s.key].name == nullptr) {
      throw std::invalid_argument("key " + std::to_string(s.key) + " was not declared in this session");
    }
    const Tensor& tensor = tensors_[s.key];
    if (open != tensor.set) open_set(tensor.spec);
    open = tensor.set;
    const bool usual = tensor.plain && s.in != nullptr && s.out != nullptr && !s.absent && s.splits.empty();
    if (!usual) check_submission(tensor.spec, open_set(tensor.spec), s);
  }
  // Marks the names as it goes, so that a name that comes twice in the batch is found too; undone on an error.
  std::size_t marked = 0;
  for (; marked < submissions.size(); ++marked) {
    Name& name = *tensors_[submissions[marked].key].name;
    if (name.in_flight) break;
    name.in_flight = true;
  }
  if (marked == submissions.size()) return;
  const TensorSpec& twice = tensors_[submissions[marked].key].spec;
  for (std::size_t i = 0; i < marked; ++i) tensors_[submissions[i].key].name->in_flight = false;
  throw std::invalid_argument(subject_of(twice, sets_.find(twice.set)) +
                              ": a tensor of that name is in flight already; wait for it, or choose another name");
}

TensorTable::Put TensorTable::put(std::span<const Submission> submissions) {
  MutexLock lock(mutex_);
  if (closed_) closed_->raise();
  check(submissions);
  return accept(submissions);
}

// All is checked before anything has a name: a number that is used up in vain would not match the other ranks' any
// more.
TensorTable::Put TensorTable::put(const TensorSpec& spec, Submission submission) {
  MutexLock lock(mutex_);
  if (closed_) closed_->raise();
  const SetInfo& set = open_set(spec);
  check_spec(spec, set, config_, registry_);
  const Named one = named(spec);
  check_submission(one.spec, set, submission);
  check_in_flight(one.spec);
  submission.key = find_or_add(one.spec);
  tensors_[submission.key].name->in_flight = true;
  Put put = accept(std::span(&submission, 1));
  if (one.counter != nullptr) ++*one.counter;
  return put;
}

TensorTable::Put TensorTable::put_unit(const std::string& unit, std::vector<TensorSpec> specs,
                                       std::vector<Submission> submissions) {
  HORO_CHECK(specs.size() == submissions.size());
  MutexLock lock(mutex_);
  if (closed_) closed_->raise();
  if (specs.empty()) throw std::invalid_argument("a unit has one tensor at least, this one has none");
  std::uint64_t& counter = unnamed_[{specs.front().set, specs.front().channel, "unit"}];
  const std::string name = unit.empty() ? "unit#" + std::to_string(counter) : unit;
  std::set<std::string> names;
  for (std::size_t i = 0; i < specs.size(); ++i) {
    TensorSpec& spec = specs[i];
    // Of an unnamed unit nothing comes again: not even its named tensors are the same in the next one.
    spec.once = unit.empty();
    spec.unit = name;
    spec.unit_size = static_cast<int>(specs.size());
    if (spec.name.empty()) spec.name = name + "_" + std::to_string(i + 1) + "of" + std::to_string(specs.size());
    const SetInfo& set = open_set(spec);
    check_spec(spec, set, config_, registry_);
    if (spec.set != specs.front().set || spec.kind == CollectiveKind::kSendRecv ||
        spec.kind == CollectiveKind::kBarrier)
      throw std::invalid_argument(subject_of(spec, set) + ": in a unit are tensors of one process set, of which all " +
                                  "members have a part: unit '" + name + "'");
    spec = named(spec).spec;
    check_submission(spec, set, submissions[i]);
    check_in_flight(spec);
    if (!names.insert(spec.name).second)
      throw std::invalid_argument(subject_of(spec, set) + ": the name comes twice in unit '" + name + "'");
  }
  check_room(specs.size(), unit.empty());
  for (std::size_t i = 0; i < specs.size(); ++i) submissions[i].key = find_or_add(specs[i]);
  for (const Submission& s : submissions) tensors_[s.key].name->in_flight = true;
  Put put = accept(submissions);
  if (unit.empty()) ++counter;
  return put;
}

TensorTable::Put TensorTable::ask(TensorSpec spec) {
  MutexLock lock(mutex_);
  if (closed_) closed_->raise();
  spec.once = true;
  sets_.check_asked(spec);
  if (spec.kind != CollectiveKind::kJoin) open_set(spec);
  const Named one = named(spec);
  check_in_flight(one.spec);
  const Key key = find_or_add(one.spec);
  if (spec.kind == CollectiveKind::kJoin) break_up_plans(spec.set);
  tensors_[key].name->in_flight = true;
  const Submission submission{key};
  Put put = accept(std::span(&submission, 1));
  if (one.counter != nullptr) ++*one.counter;
  hurry();
  return put;
}

SetInfo TensorTable::set_info(std::uint32_t set) const {
  MutexLock lock(mutex_);
  return sets_.find(set);
}

void TensorTable::check_mine(std::uint32_t set) const {
  MutexLock lock(mutex_);
  if (closed_) closed_->raise();
  sets_.find_mine(set);
}

void TensorTable::add_set(std::uint32_t set, const std::string& name, const std::vector<int>& ranks) {
  MutexLock lock(mutex_);
  sets_.add(set, name, ranks);
}

void TensorTable::remove_set(std::uint32_t set) {
  MutexLock lock(mutex_);
  sets_.remove(set);
}

void TensorTable::count_anew(std::uint32_t set) {
  MutexLock lock(mutex_);
  std::erase_if(unnamed_, [set](const auto& entry) { return std::get<0>(entry.first) == set; });
}

// Their names are marked as in flight. What may throw happens in begin(), and is taken back where it does: until then
// no other thread sees any of it.
TensorTable::Put TensorTable::accept(std::span<const Submission> submissions) {
  Put result;
  const std::size_t told = events_.size(), gathered = gathered_bytes_;
  std::size_t begun = 0;
  try {
    result.works.reserve(submissions.size());
    for (; begun < submissions.size(); ++begun) begin(submissions[begun], result);
  } catch (...) {
    events_.erase(events_.begin() + static_cast<std::ptrdiff_t>(told), events_.end());
    gathered_bytes_ = gathered;
    take_back(submissions, begun);
    throw;
  }
  for (std::size_t i = told; i < events_.size(); ++i) {
    if (const auto* complete = std::get_if<PlanComplete>(&events_[i])) commit(*complete);
  }
  if (gathered_bytes_ >= kGatheredBytes) hurry();
  in_flight_ += submissions.size();
  result.wake = needs_wake();
  return result;
}

// Counted or asked for last, when nothing can go wrong any more.
void TensorTable::begin(const Submission& submission, Put& put) {
  Tensor& tensor = tensors_[submission.key];
  tensor.submission = submission;
  tensor.work = std::make_shared<Work>(submission.key);
  put.works.push_back(tensor.work);
  tensor.reported = tensor.plan == nullptr || tensor.plan->broken;
  if (!tensor.reported) return count(tensor, put.filled);
  events_.emplace_back(Submitted{submission.key, submission.absent});
  gathered_bytes_ += tensor.bytes;
  if (asks(tensor.spec.kind)) sets_.ask(tensor.spec);
}

// Of these as many were begun. (What asks something of all ranks comes alone, and is either asked for or not begun.)
void TensorTable::take_back(std::span<const Submission> submissions, std::size_t begun) noexcept {
  for (std::size_t i = 0; i < submissions.size(); ++i) {
    Tensor& tensor = tensors_[submissions[i].key];
    tensor.work = nullptr;
    tensor.name->in_flight = false;
    if (i < begun && !tensor.reported) --tensor.plan->waiting;
  }
}

bool TensorTable::has_in_flight() const {
  MutexLock lock(mutex_);
  return in_flight_ > 0;
}

TensorTable::Batch TensorTable::take() {
  MutexLock lock(mutex_);
  in_hurry_ = false;
  gathered_bytes_ = 0;
  Batch batch;
  for (const Key key : declared_) batch.declared.emplace_back(key, &tensors_[key].spec);
  declared_.clear();
  batch.events.swap(events_);
  return batch;
}

Item TensorTable::item(Key key) const {
  const Tensor& tensor = tensors_[key];
  return {&tensor.spec, tensor.submission, tensor.work, tensor.bytes};
}

std::vector<Item> TensorTable::items(std::span<const Key> keys) const {
  MutexLock lock(mutex_);
  std::vector<Item> items;
  items.reserve(keys.size());
  for (const Key key : keys) {
    HORO_CHECK(key < tensors_.size() && tensors_[key].work != nullptr);
    items.push_back(item(key));
  }
  return items;
}

void TensorTable::settle(std::span<const Key> keys) noexcept {
  MutexLock lock(mutex_);
  for (const Key key : keys) {
    Tensor& tensor = tensors_[key];
    HORO_CHECK(tensor.work != nullptr);
    tensor.work = nullptr;
    --in_flight_;
    tensor.name->in_flight = false;
    if (asks(tensor.spec.kind)) sets_.answered(tensor.spec);
    if (!tensor.spec.once) continue;
    std::erase(tensor.name->keys, key);
    if (tensor.name->keys.empty()) names_.erase(tensor.place);
    tensor.name = nullptr;
    free_keys_.push_back(key);  // add() made room
  }
}

bool TensorTable::close(FailurePtr failure) noexcept {
  MutexLock lock(mutex_);
  if (!closed_) closed_ = std::move(failure);
  events_.clear();
  return in_flight_ > 0;
}

// The memory that would be needed to hand them out may be what ended the epoch.
void TensorTable::fail_all() noexcept {
  MutexLock lock(mutex_);
  HORO_CHECK(closed_ != nullptr);
  for (Tensor& tensor : tensors_) {
    if (!tensor.work) continue;
    tensor.work->fail(closed_);
    tensor.work = nullptr;
  }
  in_flight_ = 0;
}

void TensorTable::gather(TimePoint until, Duration quiet) {
  MutexLock lock(mutex_);
  for (std::size_t seen = 0; events_.size() > seen && Clock::now() < until;) {
    seen = events_.size();
    const TimePoint pause = std::min(until, Clock::now() + quiet);
    while (!in_hurry_ && Clock::now() < pause) hurried_.wait_until(mutex_, pause);
    if (in_hurry_) return;
  }
}

void TensorTable::hurry() noexcept {
  if (events_.empty() || std::exchange(in_hurry_, true)) return;
  hurried_.notify_all();
}

bool TensorTable::rest() {
  MutexLock lock(mutex_);
  resting_ = events_.empty();
  return resting_;
}

// True once until the engine rests again: what comes while it works is found before that.
bool TensorTable::needs_wake() noexcept {
  return !events_.empty() && std::exchange(resting_, false);
}

}  // namespace horo
