// Horovod's environment variables: those that stand for a setting of horo where that is not set, and those that have
// no effect, of which the user is told.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "horo/base/launcher.h"

namespace horo {

// `get`, and where it does not have a setting, the value that Horovod's variable gives it (HOROVOD_FUSION_THRESHOLD to
// HORO_BUCKET_BYTES). An empty variable counts as none. Throws std::invalid_argument: a variable whose value Horovod
// would not take.
Lookup with_horovod_variables(const Lookup& get);

// horo's name of a level of HOROVOD_LOG_LEVEL, in any case; empty: there is no such level.
std::optional<std::string> log_level_of_horovod(std::string_view level);

// What to tell about the HOROVOD_ variables of this process's environment that are not taken. is_placed: rank and size
// come from elsewhere, so those of Horovod's own launcher need no remark. Variables of Horovod's build count as none.
std::vector<std::string> horovod_remarks(bool is_placed);

}  // namespace horo
