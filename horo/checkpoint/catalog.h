// The checkpoints of a folder.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "horo/checkpoint/files.h"

namespace horo::checkpoint {

struct Listed {
  std::string path;
  std::optional<std::uint64_t> step;
  std::optional<std::uint64_t> bytes;
  std::string error;  // why it is not whole; empty: it is, as far as index, sizes and headers show
};

// The newest first. Empty where there is no such folder. Throws std::runtime_error: it cannot be read.
std::vector<Listed> list(const std::string& folder);
std::string json_of(const std::vector<Listed>& all);

// Leaves `keep` whole checkpoints "step-*" of the step of this one and before, this one among them, and removes those
// that are older. Those of later steps stay. Errors are ignored.
void keep_newest(const OpenFolder& parent, const std::string& name, std::uint32_t keep) noexcept;

}  // namespace horo::checkpoint
