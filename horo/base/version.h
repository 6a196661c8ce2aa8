// The version of horo, equal on all ranks of a job.
#pragma once

namespace horo {

inline constexpr const char* kVersion = "0.1.0";

}  // namespace horo
