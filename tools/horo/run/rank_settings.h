// The settings of the ranks, checked before they start.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace horo::tools {

// environment: "NAME=value". folder: that of the ranks, where relative paths begin (empty: this process's); nothing:
// the ranks are on other hosts, whose processors and files are not looked at. Throws std::invalid_argument for the
// first setting that a rank would refuse, as far as that can be known here. Returns a line for each name that is no
// setting.
std::vector<std::string> check_settings(const std::vector<std::string>& environment,
                                        const std::optional<std::string>& folder);

}  // namespace horo::tools
