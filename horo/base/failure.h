// Failure: how a collective failed, as a value that may go from thread to thread.
#pragma once

#include <memory>
#include <string>

#include "horo/base/error.h"

namespace horo {

// Threads hand on failures and throw exceptions of their own: one exception object rethrown by several threads is freed
// by whichever lets go last, and its text (shared inside the C++ library) is then read and freed in no order that a
// race checker can see.
struct Failure {
  enum class Kind { kMismatch, kPeerLost, kShutDown, kInvalid, kInternal };

  Kind kind = Kind::kInternal;
  std::string text;
  int origin = -1;  // kPeerLost: PeerLost::origin() and evidence()
  Evidence evidence = Evidence::kTold;

  // Throws Mismatch, PeerLost, ShutDown, std::invalid_argument (kInvalid) or std::runtime_error (kInternal).
  [[noreturn]] void raise() const;
};

using FailurePtr = std::shared_ptr<const Failure>;  // null: no failure

FailurePtr mismatch(std::string text);
FailurePtr peer_lost(int origin, std::string text, Evidence evidence = Evidence::kTold);
FailurePtr shut_down(std::string text);
// What the caller gave cannot take the result: found only when its size is known.
FailurePtr invalid(std::string text);
// Out of memory: made by the first call, so that a later one needs none.
FailurePtr out_of_memory();
// The exception that is being handled; to be called in a catch block. Out of memory where there is none for it.
FailurePtr current_failure();

}  // namespace horo
