// StallDiagnosis: passes the requests of rank 0 for the call sites of this rank (questions) from the engine to the
// binding, and the answers back. A thread of the binding takes a question and answers it with the stacks of the
// callers, which only the binding can read.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "controller/coordinator.h"
#include "horo/base/mutex.h"
#include "horo/base/time.h"

namespace horo {

// Any thread may call any function. Only next() blocks.
class StallDiagnosis {
 public:
  // Blocks until there is a question (returns its number, from 1) or until `until` (nothing). Throws ShutDown after
  // close().
  std::optional<std::uint64_t> next(TimePoint until);
  // False: the question is no longer open; the answer was dropped. True: wake the engine.
  bool answer(std::uint64_t question, std::string text);

  // ---- The engine.

  // Replaces the previous question. False: next() was never called, so there will be no answer.
  bool ask(std::uint64_t question);
  std::vector<Diagnosed> take();
  // Questions are numbered from 1 again.
  void begin_epoch();
  // Ends next().
  void close();

 private:
  Mutex mutex_;
  CondVar changed_;
  bool has_listener_ GUARDED_BY(mutex_) = false;  // next() was called
  std::uint64_t asked_ GUARDED_BY(mutex_) = 0;    // the last question
  bool taken_ GUARDED_BY(mutex_) = true;          // next() returned it
  bool open_ GUARDED_BY(mutex_) = false;          // it has no answer yet
  std::vector<Diagnosed> answers_ GUARDED_BY(mutex_);
  bool closed_ GUARDED_BY(mutex_) = false;
};

}  // namespace horo
