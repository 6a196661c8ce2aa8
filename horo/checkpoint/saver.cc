#include "horo/checkpoint/saver.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <new>
#include <stdexcept>
#include <utility>

#include "horo/base/forked.h"
#include "horo/base/past_caches.h"
#include "horo/base/say.h"
#include "horo/base/thread.h"

namespace horo::checkpoint {
namespace {

double seconds_since(TimePoint begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

}  // namespace

Saver::Saver(std::chrono::milliseconds lock_patience) : generation_(fork_generation()), lock_patience_(lock_patience) {}

Saver::~Saver() {
  if (!is_here()) {  // its thread cannot be joined
    new (std::nothrow) std::jthread(std::move(thread_));
    return;
  }
  make_ready();
  if (plan_ && plan_->ranks == 1) forget_failure();  // else a rank may still read the text
}

bool Saver::is_here() const {
  return fork_generation() == generation_;
}

Saver::State Saver::state() const {
  const MutexLock lock(mutex_);
  return state_;
}

bool Saver::is_writing() const {
  return state() == State::kWriting;
}

void Saver::make_ready() {
  if (state() == State::kFilling) give_up("the save was begun and not started");
  if (thread_.joinable()) thread_.join();
}

void Saver::forget_failure() {
  if (plan_ && plan_->rank == 0 && state() == State::kFailed) remove_failure(plan_->save);
  const MutexLock lock(mutex_);
  plan_.reset();
}

void Saver::lock(const std::string& folder) {
  const std::string path = std::filesystem::absolute(folder).string();
  make_folders(path);
  const OpenFolder parent = open_folder(path, true);
  lock_parent(parent);
  give_names_back(parent);
}

void Saver::lock_parent(const OpenFolder& parent) {
  if (lock_ && lock_->is_of(parent)) return;
  lock_.reset();
  lock_.emplace(parent, lock_patience_);
}

void Saver::fill(std::shared_ptr<SavePlan> plan) {
  {
    const MutexLock lock(mutex_);
    plan_ = std::move(plan);
  }
  given_.assign(plan_->tensors.size(), {});
  const std::vector<std::uint64_t> offsets = staged_offsets(*plan_);
  std::uint64_t total = 0;
  std::size_t own = 0;
  for (const DealtPart& part : plan_->parts) {
    if (part.rank != plan_->rank) continue;
    for (const DealtPiece& piece : part.pieces) {
      Given& given = given_[piece.tensor];
      const CheckpointTensor& tensor = plan_->tensors[piece.tensor];
      const bool is_first = given.copies.empty();
      given.rows.start = is_first ? piece.local_row : std::min(given.rows.start, piece.local_row);
      given.rows.stop = std::max(given.rows.stop, piece.local_row + piece.rows);
      given.copies.push_back({offsets[own] + piece.offset,
                              static_cast<std::uint64_t>(piece.local_row) * row_bytes_of(tensor.dtype, tensor.shape),
                              piece.bytes});
    }
    total += part.data_bytes;
    ++own;
  }
  for (std::size_t i = 0; i < given_.size(); ++i) {
    const CheckpointTensor& tensor = plan_->tensors[i];
    const std::uint64_t row_bytes = row_bytes_of(tensor.dtype, tensor.shape);
    for (Copy& copy : given_[i].copies) copy.from -= static_cast<std::uint64_t>(given_[i].rows.start) * row_bytes;
  }
  const MutexLock lock(mutex_);
  control_ = std::make_shared<SaveControl>();
  failure_.clear();
  progress_ = {false, 0, total, progress_.published, progress_.published_step, 0, 0};
  state_ = State::kFilling;
}

const Saver::Given& Saver::given(std::size_t tensor) const {
  if (state() != State::kFilling) throw std::invalid_argument("no save was begun, or it was started or given up");
  if (tensor >= given_.size())
    throw std::invalid_argument(say("the save has ", given_.size(), " tensors, and no tensor ", tensor));
  return given_[tensor];
}

RowRange Saver::part(std::size_t tensor) const {
  return given(tensor).rows;
}

void Saver::take(std::size_t tensor, const std::byte* data) {
  const TimePoint begin = Clock::now();
  const Given& mine = given(tensor);
  const std::string& name = plan_->tensors[tensor].name;
  if (mine.is_taken) throw std::invalid_argument(say(name, " was taken before"));
  for (const Copy& copy : mine.copies) {
    if (copy.bytes == 0) continue;
    if (data == nullptr) throw std::invalid_argument(say("the data of ", name, " is a null pointer"));
    copy_past_caches(staging_.bytes().data() + copy.to, data + copy.from, copy.bytes);
  }
  given_[tensor].is_taken = true;
  const MutexLock lock(mutex_);
  progress_.seconds_copy += seconds_since(begin);
}

void Saver::start() {
  if (state() != State::kFilling) throw std::invalid_argument("no save was begun, or it was started or given up");
  for (std::size_t i = 0; i < given_.size(); ++i) {
    if (!given_[i].is_taken && given_[i].rows.start < given_[i].rows.stop)
      throw std::invalid_argument(say("this rank has not given its part of ", plan_->tensors[i].name));
  }
  {
    const MutexLock lock(mutex_);
    if (state_ != State::kFilling) throw std::runtime_error(failure_);
    state_ = State::kWriting;
    progress_.is_writing = true;
    started_ = Clock::now();
  }
  try {
    thread_ = start_thread("horo save", [this] { write(); });
  } catch (const std::exception& error) {
    const std::string failure = say("rank ", plan_->rank, ": cannot start a thread: ", error.what());
    tell_failure(*plan_, failure);
    const MutexLock lock(mutex_);
    state_ = State::kFailed;
    progress_.is_writing = false;
    failure_ = failure;
    throw;
  }
}

void Saver::write() noexcept {
  std::shared_ptr<SaveControl> control;
  {
    const MutexLock lock(mutex_);
    control = control_;
  }
  std::string failure;
  bool is_published = false;
  try {
    run_save(*plan_, staging_.bytes(), *control);
    is_published = true;
  } catch (const std::exception& error) {
    failure = error.what();
  }
  plan_->first = {};  // and with the file its lock
  const MutexLock lock(mutex_);
  state_ = is_published ? State::kPublished : State::kFailed;
  failure_ = failure;
  progress_.is_writing = false;
  progress_.seconds_write = seconds_since(started_);
  if (is_published) {
    ++progress_.published;
    progress_.published_step = plan_->head.step;
  }
  changed_.notify_all();
}

bool Saver::wait_until(TimePoint until) const {
  const MutexLock lock(mutex_);
  if (state_ == State::kFilling) throw std::invalid_argument("the save was begun, and not started");
  while (state_ == State::kWriting) {
    if (Clock::now() >= until) return false;
    if (until == TimePoint::max()) {
      changed_.wait(mutex_);
    } else {
      changed_.wait_until(mutex_, until);
    }
  }
  if (state_ == State::kFailed) throw std::runtime_error(failure_);
  return true;
}

SaveProgress Saver::progress() const {
  const MutexLock lock(mutex_);
  SaveProgress now = progress_;
  if (control_) now.bytes_done = control_->bytes_done.load(std::memory_order_relaxed);
  if (state_ == State::kWriting) now.seconds_write = seconds_since(started_);
  return now;
}

void Saver::give_up(const std::string& reason) {
  std::shared_ptr<SavePlan> plan;
  {
    const MutexLock lock(mutex_);
    if (state_ == State::kWriting) return control_->give_up(reason);
    if (state_ != State::kFilling) return;
    state_ = State::kFailed;
    failure_ = reason;
    plan = plan_;
  }
  tell_failure(*plan, reason);
}

}  // namespace horo::checkpoint
