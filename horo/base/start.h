// Chooses how the ranks find each other, from the settings and the launcher.
#pragma once

#include "horo/base/config.h"

namespace horo {

// Adds the HORO_* variables that are not set, with the values of the launcher.
Lookup with_defaults_of(const Launcher& launcher, const Lookup& get);

// Chooses Config::meet_by for a config with all other fields set. Throws std::invalid_argument if the ranks have no way
// to find each other, with the settings that give one.
MeetBy meet_by_of(const Config& config, bool has_exchange);

}  // namespace horo
