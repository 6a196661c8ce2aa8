// Memory that a session gives its callers.
#pragma once

#include <cstddef>

#include "ring/group.h"

namespace horo {

// Memory of the group. rank: of the world, for messages. Throws std::invalid_argument (more bytes than any machine has)
// and std::runtime_error (there is no memory).
Allocation allocate_for(Group& group, int rank, std::size_t bytes);

}  // namespace horo
