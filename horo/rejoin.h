// An evicted rank of an elastic job joins again, in its process.
#pragma once

#include <optional>

#include "horo/session.h"

namespace horo {

// For the session of a rank that was evicted, because it did not answer for a while: asks `horo run` for a place among
// the ranks again. Returns what Session(config, JoinTerms) of the same process needs, which has another MemberId; the
// caller ends the old session first. Nothing: the rank was not evicted, or `horo run` refuses it, as the job ends, does
// not grow, or has no restart left for it (--restarts); or it has ended, or does not answer for 5 s. Throws ShutDown in
// a forked child, std::system_error (no descriptors), ProtocolError (an answer that is none).
std::optional<Config> rejoin(const Session& evicted);

}  // namespace horo
