// The settings of the ranks, checked before they start.
#pragma once

#include <string>
#include <vector>

namespace horo::tools {

// environment: "NAME=value". Throws std::invalid_argument for the first setting that a rank would refuse. Returns a
// line for each name that is no setting.
std::vector<std::string> check_settings(const std::vector<std::string>& environment);

}  // namespace horo::tools
