// StepFile: one JSON line for each step of this rank (HORO_STEPS; docs/scaling.md). Lines are written by a thread of
// its own, so a slow disk does not delay a step.
#pragma once

#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "horo/base/mutex.h"
#include "horo/steps/step_record.h"

namespace horo {

class StepFile {
 public:
  static constexpr std::size_t kMostWaiting = 16'384;  // records; more of them are left out, and the file says so

  // Begins the file anew. Throws std::invalid_argument if it cannot be written, or another process writes it.
  StepFile(const std::string& path, int rank);
  ~StepFile();  // close()
  StepFile(const StepFile&) = delete;
  StepFile& operator=(const StepFile&) = delete;

  // Any thread; never blocks for the disk. No effect after close().
  void add(const StepRecord& record) noexcept;
  // Writes what is left. Blocks until it is written.
  void close() noexcept;

 private:
  void write_all() noexcept;
  void write(const std::string& text) noexcept;

  const std::string path_;
  const int rank_;
  int fd_;
  bool has_failed_ = false;  // of the thread
  Mutex mutex_;
  CondVar changed_;
  std::vector<StepRecord> records_ GUARDED_BY(mutex_);
  std::uint64_t left_out_ GUARDED_BY(mutex_) = 0;
  bool closing_ GUARDED_BY(mutex_) = false;
  Mutex control_;
  std::jthread thread_ GUARDED_BY(control_);
};

// {"rank":2,"step":7,...} without a line end. Figures are integers, in nanoseconds; null: not known.
std::string step_line(const StepRecord& record, int rank);

}  // namespace horo
