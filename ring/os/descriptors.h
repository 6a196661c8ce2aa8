// The number of file descriptors that a rank needs, and whether the process may open them.
#pragma once

#include <cstddef>

#include "horo/base/config.h"

namespace horo {

// To be called before any connection is opened. Throws std::invalid_argument if the connections to all ranks need more
// descriptors than this process may open, with the limit, the required number and the remedy.
void check_descriptors(const Config& config);

// The number of further descriptors that this process may open.
std::size_t free_descriptors();

}  // namespace horo
