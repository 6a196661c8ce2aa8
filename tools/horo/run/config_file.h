// The file of `horo run --config`: options, one "key: value" a line, as in YAML.
#pragma once

#include <string>
#include <vector>

namespace horo::tools {

struct ConfigLine {
  std::string key, value;
  std::string place;  // "--config FILE, line 3": for messages
};

// Throws std::invalid_argument: a file that cannot be read, or a line that is neither empty, nor a comment, nor a key
// with one value.
std::vector<ConfigLine> read_config_file(const std::string& path);

}  // namespace horo::tools
