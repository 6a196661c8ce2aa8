// Writes a part: its space is reserved first, so that a full disk is known before a byte is written; then blocks with
// their checksums, while the kernel writes the blocks before them to the disk.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "horo/checkpoint/files.h"
#include "horo/checkpoint/index.h"
#include "horo/checkpoint/save_control.h"

namespace horo::checkpoint {

// A new part that this rank writes. The file stays locked until it is closed, which shows others that the rank lives.
struct OpenPart {
  Fd fd;
  std::string file;
};

// All of it is on the disk afterwards. Throws std::runtime_error that names the file, or GivenUp.
SavedPart write_part(const OpenFolder& folder, const OpenPart& part, const std::string& header,
                     std::span<const std::byte> data, SaveControl& control);

}  // namespace horo::checkpoint
