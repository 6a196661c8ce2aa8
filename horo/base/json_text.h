// Strings as JSON writes them.
#pragma once

#include <string>
#include <string_view>

namespace horo {

// With its quotation marks; control characters are escaped, all other bytes stay as they are.
std::string json_quoted(std::string_view text);

}  // namespace horo
