#include "tools/horo/run/rank_settings.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <sstream>
#include <utility>

#include "horo/base/config.h"
#include "horo/base/settings.h"
#include "ring/group/choose.h"
#include "ring/reduce/kernels.h"

namespace horo::tools {

namespace {

// HORO_ALGORITHMS as this process can read it: the files are named from here, or left out.
std::string readable_here(const std::string& algorithms, const std::optional<std::string>& folder) {
  std::istringstream parts(algorithms);
  std::string readable;
  for (std::string part; std::getline(parts, part, ',');) {
    const std::size_t file = part.find("=@");
    if (file != std::string::npos && !folder) continue;
    if (file != std::string::npos) {
      part = part.substr(0, file + 2) + (std::filesystem::path(*folder) / part.substr(file + 2)).string();
    }
    readable += (readable.empty() ? "" : ",") + part;
  }
  return readable;
}

}  // namespace

std::vector<std::string> check_settings(const std::vector<std::string>& environment,
                                        const std::optional<std::string>& folder) {
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
  read_overrides(readable_here(config.algorithms, folder));
  const auto kernels = variables.find("HORO_KERNELS");
  if (kernels != variables.end() && folder) kernels_for(kernels->second);
  return unknown;
}

}  // namespace horo::tools
