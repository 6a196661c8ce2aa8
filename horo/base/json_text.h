// Strings as JSON writes them.
#pragma once

#include <string>
#include <string_view>

namespace horo {

// The text as a JSON string with quotation marks; control characters are escaped, all other bytes are unchanged.
std::string json_quoted(std::string_view text);

}  // namespace horo
