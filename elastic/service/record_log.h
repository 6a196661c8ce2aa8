// Durable storage of one value, the view record of an elastic job: a compare-and-swap interface, and a log in a folder
// behind it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace horo {

inline constexpr std::size_t kMaxRecordBytes = 64 << 20;

struct StoredRecord {
  std::uint64_t revision = 0;  // 0: there is none yet
  std::vector<std::byte> bytes;
};

// Not for several threads at once. Calls block on the storage.
class RecordStore {
 public:
  virtual ~RecordStore() = default;

  // The last record whose write returned true.
  virtual StoredRecord read() = 0;

  // Stores the record with the revision `expected` + 1; durable on return. False: the revision is not `expected`, for
  // another process has written. Throws std::invalid_argument for more than kMaxRecordBytes, and std::system_error if
  // the storage fails: then read() returns the record before, but after a crash of the host the new one may be there.
  virtual bool write(std::uint64_t expected, std::span<const std::byte> bytes) = 0;
};

// A log in this folder, which is made with mode 0700 if it is missing (its parent is not). One process at a time may
// have it open. Throws std::invalid_argument if another one has, if the folder or a file in it is a link or belongs to
// another user, or if others may write the folder or read the files; std::system_error if the storage fails.
//
// Reading ends at the first entry that is torn or corrupt: what follows is cut off with a warning, since a crash during
// a write leaves such an end.
std::unique_ptr<RecordStore> open_record_log(const std::string& folder);

}  // namespace horo
