// How many descriptors a rank needs, and whether it may have them.
#pragma once

#include "horo/base/config.h"

namespace horo {

// Throws std::invalid_argument if connections to all ranks are more than this process may open: before it opens any,
// with the limit, the number that is needed and what to do.
void check_descriptors(const Config& config);

}  // namespace horo
