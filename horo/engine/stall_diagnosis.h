// StallDiagnosis: what the other ranks want to know of this one's callers (where are you?), on its way from the engine
// to the binding and back. The binding's thread takes a question and answers it; only it can look at the callers'
// stacks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "controller/coordinator.h"
#include "horo/base/mutex.h"
#include "horo/base/time.h"

namespace horo {

// Any thread may call anything; only next() blocks.
class StallDiagnosis {
 public:
  // The number (from 1) of a question that waits, or nothing when `until` has come. Throws ShutDown after close().
  std::optional<std::uint64_t> next(TimePoint until);
  // An answer to a question that is not asked any more is dropped. False: the engine need not be woken.
  bool answer(std::uint64_t question, std::string text);

  // ---- The engine's side.

  // Replaces the question before it. False: nobody ever called next(), so nobody will answer.
  bool ask(std::uint64_t question);
  std::vector<Diagnosed> take();
  // Ends next().
  void close();

 private:
  Mutex mutex_;
  CondVar changed_;
  bool heard_ GUARDED_BY(mutex_) = false;       // by somebody who called next()
  std::uint64_t asked_ GUARDED_BY(mutex_) = 0;  // the last question
  bool taken_ GUARDED_BY(mutex_) = true;        // it was handed out by next()
  bool open_ GUARDED_BY(mutex_) = false;        // it was not answered
  std::vector<Diagnosed> answers_ GUARDED_BY(mutex_);
  bool closed_ GUARDED_BY(mutex_) = false;
};

}  // namespace horo
