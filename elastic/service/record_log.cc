// The file record.log holds entries (record_entry.h); the last one is the record. Revisions rise by one from entry to
// entry, so no entry of an older log is taken for a later one.
//
// A write appends and syncs. A file that has become long is replaced by one with the last entry alone: record.tmp,
// sync, rename, sync of the folder. A file of its own, which is never replaced, carries the lock.
#include "elastic/service/record_log.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <optional>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "elastic/service/record_entry.h"
#include "horo/base/log.h"
#include "horo/base/say.h"

namespace horo {
namespace {

constexpr const char* kLogName = "record.log";
constexpr const char* kNewLogName = "record.tmp";
constexpr const char* kLockName = "record.lock";

// A file with several entries is replaced beyond 64 MiB, or beyond 100 times the last entry and 64 KiB.
constexpr std::uint64_t kMostFileBytes = 64 << 20;
constexpr std::uint64_t kLeastFileBytes = 64 << 10;
constexpr std::uint64_t kMostEntries = 100;

// Closes its descriptor.
class LogDescriptor {
 public:
  explicit LogDescriptor(int fd = -1) : fd_(fd) {}
  LogDescriptor(LogDescriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  LogDescriptor& operator=(LogDescriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~LogDescriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

// ---- Opening.

void sync_parent_of(const std::string& folder) {
  const std::string parent = std::filesystem::absolute(folder + "/.").parent_path().parent_path();
  const LogDescriptor opened(::open(parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (opened.get() < 0 || ::fsync(opened.get()) != 0) fail_storage(errno, "syncing the folder " + parent);
}

struct stat status_of(int fd, const std::string& path) {
  struct stat status {};
  if (::fstat(fd, &status) != 0) fail_storage(errno, "examining " + path);
  if (status.st_uid != ::geteuid()) throw std::invalid_argument("record log: " + path + " belongs to another user");
  return status;
}

LogDescriptor open_folder(const std::string& folder) {
  if (::mkdir(folder.c_str(), 0700) == 0) {
    sync_parent_of(folder);
  } else if (errno != EEXIST) {
    fail_storage(errno, "making the folder " + folder);
  }
  LogDescriptor opened(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (opened.get() < 0 && (errno == ENOTDIR || errno == ELOOP)) {
    throw std::invalid_argument("record log: " + folder + " is not a folder");
  }
  if (opened.get() < 0) fail_storage(errno, "opening the folder " + folder);
  if ((status_of(opened.get(), folder).st_mode & 0022) != 0) {
    throw std::invalid_argument("record log: users other than its owner may write the folder " + folder +
                                "; chmod 700 makes it private");
  }
  return opened;
}

LogDescriptor open_private_file(int folder, const std::string& path, const char* name) {
  LogDescriptor opened(::openat(folder, name, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600));
  const std::string file = path + "/" + name;
  if (opened.get() < 0 && (errno == ELOOP || errno == EISDIR || errno == ENXIO)) {
    throw std::invalid_argument("record log: " + file + " is not a regular file");
  }
  if (opened.get() < 0) fail_storage(errno, "opening " + file);
  const mode_t mode = status_of(opened.get(), file).st_mode;
  if (!S_ISREG(mode)) throw std::invalid_argument("record log: " + file + " is not a regular file");
  if ((mode & 0077) != 0) {
    throw std::invalid_argument("record log: users other than its owner may open " + file +
                                "; chmod 600 makes it private");
  }
  return opened;
}

void lock(int fd, const std::string& folder) {
  int done = 0;
  do {
    done = ::flock(fd, LOCK_EX | LOCK_NB);
  } while (done != 0 && errno == EINTR);
  if (done != 0 && errno == EWOULDBLOCK) throw std::invalid_argument("another rendezvous uses " + folder);
  if (done != 0) fail_storage(errno, "locking " + folder);
}

// ---- The log.

class RecordLog final : public RecordStore {
 public:
  explicit RecordLog(std::string path)
      : path_(std::move(path)), folder_(open_folder(path_)), lock_(open_private_file(folder_.get(), path_, kLockName)) {
    lock(lock_.get(), path_);
    ::unlinkat(folder_.get(), kNewLogName, 0);  // of a process that ended while it replaced the log
    log_ = open_private_file(folder_.get(), path_, kLogName);
    load();
    sync_folder();
  }

  StoredRecord read() override { return record_; }
  bool write(std::uint64_t expected, std::span<const std::byte> bytes) override;

 private:
  void load();
  void append(StoredRecord record);
  void cut();
  void sync_folder();
  bool is_long() const;
  void replace();

  const std::string path_;
  const LogDescriptor folder_;
  const LogDescriptor lock_;
  LogDescriptor log_;
  std::uint64_t end_ = 0;  // of the last entry, in bytes
  StoredRecord record_;
  bool is_cut_ = true;             // the file ends at `end_`, durably
  bool is_folder_synced_ = false;  // the name record.log refers to `log_`, durably
  bool is_warned_ = false;         // of a file that stays long
};

void RecordLog::load() {
  const std::uint64_t size = static_cast<std::uint64_t>(status_of(log_.get(), path_).st_size);
  while (auto entry = entry_at(log_.get(), end_, size, record_.revision)) {
    record_ = std::move(*entry);
    end_ += kEntryHeaderBytes + record_.bytes.size();
  }
  if (end_ != size) {
    log_warning(say("record log ", path_, ": the last ", size - end_, " bytes, after revision ", record_.revision,
                    ", are no whole entry and are cut off"));
    cut();
  }
  // A process that was killed may have written the last entry without syncing it.
  if (::fdatasync(log_.get()) != 0) fail_storage(errno, "syncing " + path_);
}

void RecordLog::cut() {
  is_cut_ = false;
  if (::ftruncate(log_.get(), static_cast<off_t>(end_)) != 0) fail_storage(errno, "cutting the log in " + path_);
  if (::fdatasync(log_.get()) != 0) fail_storage(errno, "syncing " + path_);
  is_cut_ = true;
}

void RecordLog::sync_folder() {
  if (::fsync(folder_.get()) != 0) fail_storage(errno, "syncing the folder " + path_);
  is_folder_synced_ = true;
}

bool RecordLog::write(std::uint64_t expected, std::span<const std::byte> bytes) {
  if (bytes.size() > kMaxRecordBytes) {
    throw std::invalid_argument(say("a record of ", bytes.size(), " bytes, at most ", kMaxRecordBytes, " expected"));
  }
  if (expected != record_.revision) return false;
  if (!is_cut_) cut();
  if (!is_folder_synced_) sync_folder();
  append({expected + 1, {bytes.begin(), bytes.end()}});
  if (is_long()) replace();
  return true;
}

// On failure the file is cut to what it was; if that fails as well, the next write begins with it.
void RecordLog::append(StoredRecord record) {
  try {
    write_entry(log_.get(), end_, record.revision, record.bytes);
  } catch (const std::system_error&) {
    try {
      cut();
    } catch (const std::system_error& error) {
      log_warning(error.what());
    }
    throw;
  }
  end_ += kEntryHeaderBytes + record.bytes.size();
  record_ = std::move(record);
}

bool RecordLog::is_long() const {
  const std::uint64_t entry = kEntryHeaderBytes + record_.bytes.size();
  return end_ > entry && end_ > std::min(kMostFileBytes, std::max(kLeastFileBytes, kMostEntries * entry));
}

// The record is durable already: a failure is a warning, once, and the next write tries again. Once the new file has
// the name, nothing is appended to it before the folder is synced: else a crash could bring the old file back without
// it.
void RecordLog::replace() {
  try {
    ::unlinkat(folder_.get(), kNewLogName, 0);
    LogDescriptor file = open_private_file(folder_.get(), path_, kNewLogName);
    write_entry(file.get(), 0, record_.revision, record_.bytes);
    if (::renameat(folder_.get(), kNewLogName, folder_.get(), kLogName) != 0) fail_storage(errno, "renaming");
    log_ = std::move(file);
    end_ = kEntryHeaderBytes + record_.bytes.size();
    is_folder_synced_ = false;
    sync_folder();
    is_warned_ = false;
  } catch (const std::exception& error) {
    if (!std::exchange(is_warned_, true)) log_warning(say("the log in ", path_, " stays long: ", error.what()));
  }
}

}  // namespace

std::unique_ptr<RecordStore> open_record_log(const std::string& folder) {
  return std::make_unique<RecordLog>(folder);
}

}  // namespace horo
