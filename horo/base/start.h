// From what a launcher says to how the ranks find each other.
#pragma once

#include "horo/base/config.h"

namespace horo {

// HORO_* variables that are not set, as the launcher sets its own.
Lookup with_defaults_of(const Launcher& launcher, const Lookup& get);

// Of a config whose every other field is set. Throws std::invalid_argument: nothing brings these ranks together, and
// which settings would.
MeetBy meet_by_of(const Config& config, bool has_exchange);

}  // namespace horo
