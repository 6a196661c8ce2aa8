#include "elastic/service/record_memory.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include "elastic/service/record_entry.h"
#include "horo/base/say.h"

namespace horo {
namespace {

class RecordMemory final : public RecordStore {
 public:
  explicit RecordMemory(std::vector<int> fds) : fds_(std::move(fds)) {
    for (const int fd : fds_) {
      struct stat status {};
      if (::fstat(fd, &status) != 0 || !S_ISREG(status.st_mode) || status.st_nlink != 0)
        throw std::invalid_argument(say("descriptor ", fd, " is not one that horo run has given to its rendezvous"));
      auto entry = entry_at(fd, 0, static_cast<std::uint64_t>(status.st_size), 0);
      if (entry && entry->revision > record_.revision) record_ = std::move(*entry);
    }
  }

  StoredRecord read() override { return record_; }

  bool write(std::uint64_t expected, std::span<const std::byte> bytes) override {
    if (bytes.size() > kMaxRecordBytes) {
      throw std::invalid_argument(say("a record of ", bytes.size(), " bytes, at most ", kMaxRecordBytes, " expected"));
    }
    if (expected != record_.revision) return false;
    const int fd = fds_[(expected + 1) % fds_.size()];
    if (::ftruncate(fd, 0) != 0) fail_storage(errno, "emptying a file in memory");
    write_entry(fd, 0, expected + 1, bytes);
    record_ = {expected + 1, {bytes.begin(), bytes.end()}};
    return true;
  }

 private:
  const std::vector<int> fds_;
  StoredRecord record_;
};

}  // namespace

std::unique_ptr<RecordStore> open_record_memory(std::vector<int> fds) {
  if (fds.empty()) throw std::invalid_argument("a record in memory needs a file");
  return std::make_unique<RecordMemory>(std::move(fds));
}

}  // namespace horo
