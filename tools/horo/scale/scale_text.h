// The figures of a ScaleDocument for a terminal. Every row adds up as it is shown.
#pragma once

#include <string>

#include "tools/horo/scale/scale_document.h"

namespace horo::tools {

// Lines; control characters of names are shown as \xNN.
std::string text_of(const ScaleDocument& document);

// "1,212": thousandths, rounded to whole numbers above 100.
std::string rate_text(std::int64_t milli);

// "54.9 ms": as exact as a step of this length needs.
std::string step_text(std::int64_t ns);

}  // namespace horo::tools
