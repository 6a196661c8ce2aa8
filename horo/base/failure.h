// Failure: how a collective failed, as a value that may go from thread to thread.
#pragma once

#include <memory>
#include <string>

#include "horo/base/error.h"

namespace horo {

// Threads share a Failure and each throw an exception of their own. One exception object rethrown by several threads
// would be freed by the last of them, and ThreadSanitizer does not see the order of the reads and the release of its
// text, which is shared inside the C++ library.
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
// The caller's memory is too small for the result: detected only when the size of the result is known.
FailurePtr invalid(std::string text);
// Out of memory: allocated by the first call, so later calls need no memory.
FailurePtr out_of_memory();
// The exception that is being handled; called in a catch block. out_of_memory() where no memory is left for it.
FailurePtr current_failure();

}  // namespace horo
