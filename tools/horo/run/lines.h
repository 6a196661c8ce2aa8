// Lines of horo's own messages that fit into a terminal.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace horo::tools {

inline constexpr std::size_t kLongestLine = 160;

// Breaks longer lines at spaces; what follows is indented by four more. A word that is longer stays whole.
std::string folded(std::string_view text, std::size_t longest = kLongestLine);

// Cuts the middle out of longer lines, which quote what others have printed: the end often has the exit code.
std::string cut_lines(std::string_view text);

}  // namespace horo::tools
