// The commit rule: which collectives of the last epoch are done. The worker and the simulator of the tests use this one
// function. docs/protocol.md explains why the rule is sound.
#pragma once

#include <cstdint>
#include <span>

#include "elastic/messages.h"

namespace horo {

// Whether the collective with this number in the lane is done: every participant that is in `progress`, of a View or
// Settle, has it, or a later one of the lane, complete. A participant that does not list the lane has nothing complete
// in it.
bool is_committed(const ProgressOf& progress, std::uint32_t lane, std::uint64_t number,
                  std::span<const MemberId> participants);

}  // namespace horo
