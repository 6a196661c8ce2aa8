#include "tools/horo/run/rank_settings.h"

#include <algorithm>
#include <map>
#include <utility>

#include "horo/base/config.h"
#include "horo/base/settings.h"
#include "ring/group/choose.h"
#include "ring/reduce/kernels.h"

namespace horo::tools {

std::vector<std::string> check_settings(const std::vector<std::string>& environment) {
  std::map<std::string, std::string> variables;
  std::vector<std::string> unknown;
  for (const std::string& text : environment) {
    const std::string name = text.substr(0, text.find('='));
    if (!variables.emplace(name, text.substr(std::min(text.size(), name.size() + 1))).second) continue;
    if (auto line = unknown_setting(name)) unknown.push_back(std::move(*line));
  }
  const Config config = config_from([&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
  read_overrides(config.algorithms);
  if (const auto kernels = variables.find("HORO_KERNELS"); kernels != variables.end()) kernels_for(kernels->second);
  return unknown;
}

}  // namespace horo::tools
