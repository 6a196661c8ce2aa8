// Saver: writes the checkpoints of this rank's job, one after the other, in the background. begin_save() in save.h
// begins one; the caller copies the rows of this rank into it, and goes on.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "horo/base/mutex.h"
#include "horo/base/time.h"
#include "horo/checkpoint/save_run.h"
#include "horo/checkpoint/staging.h"

namespace horo::checkpoint {

struct SaveProgress {
  bool is_writing = false;
  std::uint64_t bytes_done = 0;  // of this rank, in the save that is being written or was last
  std::uint64_t bytes_total = 0;
  std::uint64_t published = 0;  // saves of this saver
  std::uint64_t published_step = 0;
  double seconds_copy = 0;   // of the last save
  double seconds_write = 0;  // until now, or until its end
};

// wait_until(), progress() and give_up() may be called by any thread; the rest by one at a time.
class Saver {
 public:
  // lock_patience: so long it waits for a job that has the lock of the folder, and may be about to end.
  explicit Saver(std::chrono::milliseconds lock_patience = std::chrono::seconds(5));
  // Waits for the save that is being written; one that has not started is given up.
  ~Saver();
  Saver(const Saver&) = delete;
  Saver& operator=(const Saver&) = delete;

  // False in a forked child, where the saver has no thread: no other call is made there.
  bool is_here() const;

  // Rows of this rank's memory that it gives of a tensor of the save that was begun: counted from 0 where it has
  // ranges.
  RowRange part(std::size_t tensor) const;
  // Copies them; `data` is the first of them.
  void take(std::size_t tensor, const std::byte* data);
  // Everything is taken: writing begins.
  void start();

  // Blocks until no save is being written (true), or until `until` (false). Throws std::runtime_error: the last one
  // failed, on this rank or another one; std::invalid_argument: one was begun and is not started.
  bool wait_until(TimePoint until) const;
  SaveProgress progress() const;
  // The save fails with this reason, unless it is being published. Where it has not started, the reason is written to a
  // file for the other ranks.
  void give_up(const std::string& reason);

  // Makes the folder, if it is missing, and takes its lock before a save does: for rank 0, before it reads what is
  // there. Throws std::runtime_error: another job has it, or the folder cannot be written.
  // A checkpoint that a killed job was about to replace gets its name back.
  void lock(const std::string& folder);
  // Gives the lock back, so that another process of the job can write there.
  void unlock() { lock_.reset(); }

  // ---- begin_save() alone.

  bool is_writing() const;
  // Gives up a save that has not started, and ends the thread of one that has ended.
  void make_ready();
  // When all ranks have seen how the last save ended: removes the text of its failure.
  void forget_failure();
  StagingMemory& staging() { return staging_; }
  void fill(std::shared_ptr<SavePlan> plan);
  // Rank 0 takes the lock of the parent folder, which it holds from then on.
  void lock_parent(const OpenFolder& parent);

 private:
  enum class State { kIdle, kFilling, kWriting, kPublished, kFailed };

  // Bytes that take() copies.
  struct Copy {
    std::uint64_t to = 0;    // in the staging memory
    std::uint64_t from = 0;  // behind `data`
    std::uint64_t bytes = 0;
  };
  struct Given {
    RowRange rows;
    std::vector<Copy> copies;
    bool is_taken = false;
  };

  void write() noexcept;
  State state() const;
  const Given& given(std::size_t tensor) const;

  const std::uint32_t generation_;  // fork_generation()
  const std::chrono::milliseconds lock_patience_;
  StagingMemory staging_;
  std::optional<FolderLock> lock_;
  std::shared_ptr<SavePlan> plan_;  // written with the mutex
  std::vector<Given> given_;        // by tensor

  mutable Mutex mutex_;
  mutable CondVar changed_;
  State state_ GUARDED_BY(mutex_) = State::kIdle;
  std::shared_ptr<SaveControl> control_ GUARDED_BY(mutex_);  // of the last save
  std::string failure_ GUARDED_BY(mutex_);
  SaveProgress progress_ GUARDED_BY(mutex_);
  TimePoint started_ GUARDED_BY(mutex_);
  std::jthread thread_;
};

}  // namespace horo::checkpoint
