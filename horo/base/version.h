// The version of horo, equal on all ranks of a job. Its one source is project(VERSION) in the top CMakeLists.txt.
#pragma once

namespace horo {

extern const char* const kVersion;

}  // namespace horo
