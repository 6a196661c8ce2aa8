// Memory of this process alone, for the buffers of a group whose ranks do not share memory.
#pragma once

#include <cstddef>

#include "ring/collective.h"

namespace horo {

// Aligned to 64 bytes. Larger blocks have their pages alone, since a page that is pinned for a device counts as one
// block; from 2 MiB on they begin on a huge page, which the kernel fills in one fault. Throws std::bad_alloc.
Allocation allocate_here(std::size_t bytes);

}  // namespace horo
