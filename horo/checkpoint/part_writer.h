// Writes a part: its space is reserved first, so that a full disk is known before a byte is written; then blocks with
// their checksums, while the kernel writes the blocks before them to the disk.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "horo/checkpoint/files.h"
#include "horo/checkpoint/index.h"

namespace horo::checkpoint {

// A new part that this rank writes. The file stays locked until it is closed, which shows others that the rank lives.
struct OpenPart {
  Fd fd;
  std::string file;
};

// All of it is on the disk afterwards. Before each block and behind the last one it calls `before_block` with the bytes
// of the block before; what that throws ends the writing. Throws std::runtime_error that names the file.
SavedPart write_part(const OpenFolder& folder, const OpenPart& part, const std::string& header,
                     std::span<const std::byte> data, const std::function<void(std::uint64_t bytes)>& before_block);

}  // namespace horo::checkpoint
