// What a user can do about a limit of the machine.
#pragma once

#include <exception>
#include <string>

namespace horo::tools {

// The text of an error of the system in `horo run`, with the limit that was reached and how it is raised.
std::string text_with_remedy(const std::exception& error);

}  // namespace horo::tools
