// Strings as JSON writes them.
#pragma once

#include <string>
#include <string_view>

namespace horo {

// The text as a JSON string with quotation marks. Control characters are escaped, and U+FFFD stands for each byte that
// is not UTF-8: names of tensors are bytes of the caller.
std::string json_quoted(std::string_view text);

}  // namespace horo
