#include "horo/tensors/tensor_table.h"

#include <algorithm>
#include <optional>
#include <set>
#include <stdexcept>

#include "horo/base/check.h"
#include "horo/tensors/spec_check.h"

namespace horo {

TensorTable::TensorTable(const Config& config, const Registry& registry, const Timeline* timeline)
    : config_(config),
      registry_(registry),
      timeline_(timeline),
      sets_(config),
      tensors_(config_),
      plans_(tensors_),
      rounds_(config.max_round_streams) {}

void TensorTable::check_open() const {
  if (closed_) closed_->raise();
}

void TensorTable::refuse_in_flight(const TensorSpec& spec) const {
  throw std::invalid_argument(subject_of(spec, sets_.find(spec.set)) +
                              ": a tensor of that name is in flight already; wait for it, or choose another name");
}

void TensorTable::check_not_in_flight(const TensorSpec& spec) const {
  if (tensors_.is_in_flight(spec)) refuse_in_flight(spec);
}

// The set of the spec, provided that this rank may submit to it.
const SetInfo& TensorTable::set_for_submit(const TensorSpec& spec) const {
  const SetInfo& set = sets_.find_mine(spec.set);
  if (!sets_.has_joined(spec.set)) return set;
  throw std::invalid_argument(subject_of(spec, set) + ": rank " + std::to_string(config_.rank) + " has joined " +
                              describe(set) + ", and submits nothing to it until all others have joined");
}

Key TensorTable::declare(const TensorSpec& spec) {
  MutexLock lock(mutex_);
  check_open();
  const SetInfo& set = sets_.find_mine(spec.set);
  const bool lost = is_lost(spec);
  if (!lost) check_spec(spec, set, config_, registry_);
  const NameTable::Resolved resolved = tensors_.resolve(spec, set, lost);
  tensors_.make_room(1);
  const Key key = tensors_.find_or_add(resolved.spec);
  tensors_.declare(key);
  if (resolved.counter != nullptr) ++*resolved.counter;
  return key;
}

void TensorTable::undeclare(std::span<const Key> keys) {
  MutexLock lock(mutex_);
  for (std::size_t done = 0; done < keys.size(); ++done) {
    const Key key = keys[done];
    if (tensors_.has(key) && tensors_.at(key).declared > 0) {
      tensors_.undeclare(key);
      continue;
    }
    for (const Key other : keys.first(done)) tensors_.declare(other);
    throw std::invalid_argument("key " + std::to_string(key) + " was not declared in this session, or is undeclared");
  }
}

void TensorTable::check(const Submission& submission) const {
  if (!tensors_.has(submission.key)) {
    throw std::invalid_argument("key " + std::to_string(submission.key) + " was not declared in this session");
  }
  const TensorRecord& record = tensors_.at(submission.key);
  if (is_lost(record.spec)) return;
  const bool is_on_host = record.spec.device == DeviceType::kHost;
  const bool is_valid = record.plain && is_on_host == (submission.ready == nullptr) && submission.in != nullptr &&
                        submission.out != nullptr && !submission.absent && submission.splits.empty();
  if (is_valid) return;
  const SetInfo& set = set_for_submit(record.spec);
  if (config_.min_np > 0) check_spec(record.spec, set, config_, registry_);  // the set may have changed since declare()
  check_submission(record.spec, set, submission);
}

// Marks one name after the other, so that a name that occurs twice in the batch is found too.
void TensorTable::mark_names(std::span<const Submission> submissions) {
  std::size_t marked = 0;
  for (; marked < submissions.size(); ++marked) {
    NameEntry& name = *tensors_.at(submissions[marked].key).name;
    if (name.in_flight) break;
    name.in_flight = true;
  }
  if (marked == submissions.size()) return;
  for (std::size_t i = 0; i < marked; ++i) tensors_.at(submissions[i].key).name->in_flight = false;
  refuse_in_flight(tensors_.at(submissions[marked].key).spec);
}

TensorTable::Accepted TensorTable::submit(std::span<const Submission> submissions) {
  MutexLock lock(mutex_);
  check_open();
  std::optional<std::uint32_t> checked_set;
  const TensorSpec* committed = nullptr;
  for (const Submission& submission : submissions) {
    check(submission);
    const TensorRecord& record = tensors_.at(submission.key);
    if (checked_set != record.set) set_for_submit(record.spec);
    checked_set = record.set;
    if (record.spec.kind == CollectiveKind::kBarrier && record.spec.round_stream != 0) committed = &record.spec;
  }
  mark_names(submissions);
  // The barrier of a round, which is submitted alone, commits what is reported before it.
  if (committed != nullptr) plans_.break_plans(RoundStream{committed->set, committed->round_stream}, queue_.batch());
  return accept(submissions);
}

// All checks precede the increment of the counter of unnamed calls: a number used by a refused call would not match
// that of the other ranks any more.
TensorTable::Accepted TensorTable::submit(const TensorSpec& spec, Submission submission) {
  MutexLock lock(mutex_);
  check_open();
  const SetInfo& set = set_for_submit(spec);
  const bool lost = is_lost(spec);
  if (!lost) check_spec(spec, set, config_, registry_);
  const NameTable::Resolved resolved = tensors_.resolve(spec, set, lost);
  if (!lost) check_submission(resolved.spec, set, submission);
  check_not_in_flight(resolved.spec);
  tensors_.make_room(1);
  submission.key = tensors_.find_or_add(resolved.spec);
  tensors_.at(submission.key).name->in_flight = true;
  Accepted result = accept(std::span(&submission, 1));
  if (resolved.counter != nullptr) ++*resolved.counter;
  return result;
}

TensorTable::Accepted TensorTable::submit_unit(const std::string& unit, std::vector<TensorSpec> specs,
                                               std::vector<Submission> submissions) {
  HORO_CHECK(specs.size() == submissions.size());
  MutexLock lock(mutex_);
  check_open();
  if (specs.empty()) throw std::invalid_argument("a unit has one tensor at least, this one has none");
  std::uint64_t& counter = tensors_.unnamed_calls(specs.front(), "unit");
  // The tensors of an unnamed unit do not recur, not even those with a name.
  for (TensorSpec& spec : specs) spec.once = unit.empty();
  check_unit(unit.empty() ? "unit#" + std::to_string(counter) : unit, specs, submissions);
  tensors_.make_room(specs.size());
  tensors_.check_capacity(specs.size());
  for (std::size_t i = 0; i < specs.size(); ++i) submissions[i].key = tensors_.find_or_add(specs[i]);
  for (const Submission& s : submissions) tensors_.at(s.key).name->in_flight = true;
  Accepted result = accept(submissions);
  if (unit.empty()) ++counter;
  return result;
}

// Names the tensors of the unit and checks them and their submissions.
void TensorTable::check_unit(const std::string& unit, std::vector<TensorSpec>& specs,
                             std::span<const Submission> submissions) {
  std::set<std::string> names;
  for (std::size_t i = 0; i < specs.size(); ++i) {
    TensorSpec& spec = specs[i];
    spec.unit = unit;
    spec.unit_size = static_cast<int>(specs.size());
    if (spec.name.empty()) spec.name = unit + "_" + std::to_string(i + 1) + "of" + std::to_string(specs.size());
    const SetInfo& set = set_for_submit(spec);
    const bool lost = is_lost(spec);
    if (!lost) check_spec(spec, set, config_, registry_);
    if (spec.round_stream != specs.front().round_stream)
      throw std::invalid_argument(subject_of(spec, set) + ": the tensors of a unit have one round stream: unit '" +
                                  unit + "'");
    if (spec.set != specs.front().set || spec.kind == CollectiveKind::kSendRecv ||
        spec.kind == CollectiveKind::kBarrier)
      throw std::invalid_argument(subject_of(spec, set) + ": in a unit are tensors of one process set, of which all " +
                                  "members have a part: unit '" + unit + "'");
    spec = tensors_.resolve(spec, set, lost).spec;
    if (!lost) check_submission(spec, set, submissions[i]);
    check_not_in_flight(spec);
    if (!names.insert(spec.name).second)
      throw std::invalid_argument(subject_of(spec, set) + ": the name comes twice in unit '" + unit + "'");
  }
}

TensorTable::Accepted TensorTable::request(TensorSpec spec) {
  MutexLock lock(mutex_);
  check_open();
  spec.once = true;
  sets_.complete_request(spec);
  const bool lost = is_lost(spec);
  if (!lost) sets_.check_request(spec);
  if (spec.kind != CollectiveKind::kJoin) set_for_submit(spec);
  const NameTable::Resolved resolved = tensors_.resolve(spec, sets_.find(spec.set), lost);
  check_not_in_flight(resolved.spec);
  tensors_.make_room(1);
  const Key key = tensors_.find_or_add(resolved.spec);
  // A rank that has joined completes no plan of the set.
  if (spec.kind == CollectiveKind::kJoin) plans_.break_plans(spec.set, queue_.batch());
  tensors_.at(key).name->in_flight = true;
  const Submission submission{key};
  Accepted result = accept(std::span(&submission, 1));
  if (resolved.counter != nullptr) ++*resolved.counter;
  request_flush();
  return result;
}

SetInfo TensorTable::set_info(std::uint32_t set) const {
  MutexLock lock(mutex_);
  return sets_.find(set);
}

void TensorTable::check_member(std::uint32_t set) const {
  MutexLock lock(mutex_);
  check_open();
  sets_.find_mine(set);
}

// The names are marked as in flight. begin() does everything that may throw, and is undone if it does; no other thread
// sees the table before accept() returns.
TensorTable::Accepted TensorTable::accept(std::span<const Submission> submissions) {
  Accepted result;
  const SubmissionQueue::Mark mark = queue_.mark();
  std::size_t begun = 0;
  try {
    result.works.reserve(submissions.size());
    const std::set<ScopedName> lost = lost_units(submissions);
    for (; begun < submissions.size(); ++begun) begin(submissions[begun], lost, result);
  } catch (...) {
    queue_.roll_back(mark);
    undo(submissions, begun);
    throw;
  }
  queue_.stamp(mark, &Clock::now);
  const std::vector<FilledPlan>& plans = queue_.batch().plans;
  for (std::size_t i = mark.plans; i < plans.size(); ++i) plans_.commit(plans[i].plan);
  const auto is_message = [](const auto& work) { return work->is_message(); };
  const bool has_messages = std::ranges::any_of(result.works, is_message);  // nothing is gathered into their bucket
  if (plans.size() > mark.plans || queue_.is_large() || has_messages) request_flush();
  in_flight_ += submissions.size();
  result.wake = queue_.needs_wake();
  return result;
}

// Nothing throws after the submission is counted in its plan or added to the requests.
void TensorTable::begin(const Submission& submission, const std::set<ScopedName>& lost_units, Accepted& result) {
  TensorRecord& record = tensors_.at(submission.key);
  record.item.submission = submission;
  record.item.round = rounds_.current({record.spec.set, record.spec.round_stream});
  const bool is_message = record.spec.kind == CollectiveKind::kSendRecv;
  record.item.work = std::make_shared<Work>(submission.key, is_message ? kMessagesLane : record.spec.set);
  if (timeline_ != nullptr && timeline_->is_on()) record.item.submitted = Clock::now();
  record.serial = ++serial_;
  record.lost = is_lost(record.spec) || (!lost_units.empty() && lost_units.contains(unit_of(record.spec)));
  result.works.push_back(record.item.work);
  record.reported = record.plan == nullptr || record.plan->broken;
  if (!record.reported) return plans_.count(record, queue_.batch(), result.filled);
  queue_.add(record.item, record.lost);
  if (is_request(record.spec.kind)) sets_.add_request(record.spec);
}

// begun: so many of the submissions were begun. (A request is submitted alone, and is either added or not begun.)
void TensorTable::undo(std::span<const Submission> submissions, std::size_t begun) noexcept {
  for (std::size_t i = 0; i < submissions.size(); ++i) {
    TensorRecord& record = tensors_.at(submissions[i].key);
    record.item.work = nullptr;
    record.name->in_flight = false;
    if (i < begun && !record.reported) plans_.uncount(record);
  }
}

bool TensorTable::nudge(std::span<const Key> keys) {
  MutexLock lock(mutex_);
  for (const Key key : keys) {
    if (tensors_.has(key)) plans_.break_plan_of(tensors_.at(key), queue_.batch());
  }
  request_flush();
  return queue_.needs_wake();
}

bool TensorTable::step_end(std::uint32_t set) {
  MutexLock lock(mutex_);
  check_open();
  sets_.find_mine(set);
  const SubmissionQueue::Mark mark = queue_.mark();
  plans_.end_step(set, queue_.batch());
  queue_.stamp(mark, &Clock::now);
  request_flush();
  return queue_.needs_wake();
}

// What was submitted so far is of the present round, so it is reported before the round ends.
void TensorTable::report_stream(const RoundStream& stream) {
  check_open();
  sets_.find_mine(stream.set);
  if (stream.number == 0) throw std::invalid_argument("round stream 0; expected a number from 1 on (0: no rounds)");
  plans_.break_plans(stream, queue_.batch());
}

void TensorTable::begin_round(const RoundBegun& begun) {
  MutexLock lock(mutex_);
  report_stream(begun.stream);
  rounds_.begin(begun, serial_);
  queue_.add_silent(begun);
}

bool TensorTable::fail_round(RoundFailed failed) {
  MutexLock lock(mutex_);
  report_stream(failed.stream);
  rounds_.fail(failed);
  queue_.batch().events.emplace_back(std::move(failed));
  request_flush();
  return queue_.needs_wake();
}

void TensorTable::see(std::uint32_t epoch) {
  MutexLock lock(mutex_);
  seen_epoch_ = std::max(seen_epoch_, epoch);
  while (!unseen_.empty() && unseen_.front().epoch <= epoch) unseen_.pop_front();
}

std::uint32_t TensorTable::seen_epoch() const {
  MutexLock lock(mutex_);
  return seen_epoch_;
}

std::uint64_t TensorTable::plans_version() const {
  MutexLock lock(mutex_);
  return plans_.version();
}

std::vector<BucketPlace> TensorTable::places(std::span<const Key> keys) const {
  MutexLock lock(mutex_);
  return plans_.places(keys);
}

void TensorTable::request_flush() noexcept {
  if (queue_.request_flush()) flush_requested_.notify_all();
}

}  // namespace horo
