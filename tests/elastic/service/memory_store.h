// A RecordStore in memory, with failures: at the n-th write from now on.
#pragma once

#include <functional>
#include <system_error>
#include <vector>

#include "elastic/service/record_log.h"

namespace horo {

enum class StoreFault { kNone, kFailsBefore, kFailsAfter, kIsLost };  // an error with or without effect; CAS lost

class MemoryStore final : public RecordStore {
 public:
  StoredRecord read() override { return record; }
  bool write(std::uint64_t expected, std::span<const std::byte> bytes) override {
    ++writes;
    const StoreFault now = writes == fault_at ? fault : StoreFault::kNone;
    if (now == StoreFault::kIsLost || expected != record.revision) return false;
    if (now != StoreFault::kFailsBefore) {
      record = {expected + 1, {bytes.begin(), bytes.end()}};
      if (on_write) on_write();
    }
    if (now != StoreFault::kNone) throw std::system_error(EIO, std::generic_category(), "write");
    return true;
  }
  void fail_at(std::uint64_t next, StoreFault how) {
    fault_at = writes + next;
    fault = how;
  }

  StoredRecord record;
  std::uint64_t writes = 0, fault_at = 0;
  StoreFault fault = StoreFault::kNone;
  std::function<void()> on_write;  // after each
};

}  // namespace horo
