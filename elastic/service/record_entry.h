// An entry of a record in a file:
//   u32 magic, u32 version, u64 bytes of the record, u64 revision, u32 CRC32C of the 24 bytes before and the record,
// then the record.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "elastic/service/record_log.h"
#include "horo/base/wire.h"

namespace horo {

inline constexpr std::size_t kEntryHeaderBytes = 24 + kChecksumBytes;

[[noreturn]] void fail_storage(int error, const std::string& what);  // std::system_error

// Writes an entry and syncs the file. Throws std::system_error.
void write_entry(int fd, std::uint64_t offset, std::uint64_t revision, std::span<const std::byte> bytes);

// The entry at the offset; nothing: there is no whole one before `end`, or it does not follow the revision `before` (0:
// any may come first). Throws std::system_error.
std::optional<StoredRecord> entry_at(int fd, std::uint64_t offset, std::uint64_t end, std::uint64_t before);

}  // namespace horo
