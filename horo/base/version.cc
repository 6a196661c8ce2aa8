#include "horo/base/version.h"

namespace horo {

const char* const kVersion = HORO_VERSION;  // horo/base/CMakeLists.txt defines the macro for this file alone

}  // namespace horo
