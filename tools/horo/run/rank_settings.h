// The settings of the ranks, checked before they start.
#pragma once

#include <string>
#include <vector>

namespace horo::tools {

// Where the ranks run.
struct RanksPlace {
  std::string folder;   // relative paths begin there; empty: in this process's
  bool is_here = true;  // on this host; else its processor and its files are not those of the ranks
};

// environment: "NAME=value". Throws std::invalid_argument for the first setting that a rank would refuse, as far as
// that can be known here. Returns a line for each name that is no setting.
std::vector<std::string> check_settings(const std::vector<std::string>& environment, const RanksPlace& place);

}  // namespace horo::tools
