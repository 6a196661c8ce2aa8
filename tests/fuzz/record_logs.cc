// The log of a rendezvous, with any bytes in its file: all whole entries before the first damage are read, and what is
// written then is read.
#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>

#include "elastic/service/record_log.h"
#include "horo/base/check.h"
#include "tests/fuzz/targets.h"

namespace horo {
namespace {

using FileBytes = std::vector<std::byte>;

constexpr std::size_t kMostWritten = 6;
constexpr std::size_t kMostFuzzedRecord = 48;  // bytes

// No line for each log that is cut.
[[maybe_unused]] const int kQuiet = ::setenv("HORO_LOG_LEVEL", "off", 1);

// In memory, if there is such a folder: it syncs often.
class FuzzedLog {
 public:
  FuzzedLog() {
    const bool has_memory = ::access("/dev/shm", W_OK) == 0;
    std::string name =
        (has_memory ? "/dev/shm" : std::filesystem::temp_directory_path().string()) + "/horo-fuzz-XXXXXX";
    HORO_CHECK(::mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  ~FuzzedLog() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::unique_ptr<RecordStore> open() const { return open_record_log(path_); }
  FileBytes content() const {
    std::ifstream in(path_ + "/record.log", std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    const auto bytes = std::as_bytes(std::span(text));
    return {bytes.begin(), bytes.end()};
  }
  void set_content(std::span<const std::byte> bytes) const {
    std::filesystem::remove(path_ + "/record.log");
    open();  // makes the file
    std::ofstream out(path_ + "/record.log", std::ios::binary | std::ios::trunc);
    out.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  }

 private:
  std::string path_;
};

void write_next(const FuzzedLog& log) {
  const FileBytes next(3, std::byte{7});
  std::uint64_t revision = 0;
  {
    const auto store = log.open();
    revision = store->read().revision;
    if (revision == UINT64_MAX) return;
    HORO_CHECK(store->write(revision, next));
  }
  const StoredRecord read = log.open()->read();
  HORO_CHECK(read.revision == revision + 1 && read.bytes == next);
}

bool read_any(const FuzzedLog& log, FuzzInput& input) {
  log.set_content(input.rest());
  const bool is_read = log.open()->read().revision > 0;
  write_next(log);
  return is_read;
}

// A cut, a byte that changes, or bytes in between.
FileBytes damaged(FileBytes bytes, FuzzInput& input, bool& is_exact) {
  const std::size_t what = input.number(1) % 3, at = input.below(bytes.size() + 1);
  is_exact = what != 2;
  if (what == 0) bytes.resize(at);
  if (what == 1 && at < bytes.size()) bytes[at] ^= static_cast<std::byte>(1 + input.below(255));
  const FileBytes more = input.take(64);
  if (what == 2) bytes.insert(bytes.begin() + static_cast<std::ptrdiff_t>(at), more.begin(), more.end());
  return bytes;
}

bool read_damaged(const FuzzedLog& log, FuzzInput& input) {
  log.set_content({});
  std::vector<FileBytes> records;
  std::vector<std::size_t> ends;
  for (std::size_t left = 1 + input.below(kMostWritten); left > 0; --left) {
    records.push_back(input.take(input.below(kMostFuzzedRecord)));
    HORO_CHECK(log.open()->write(records.size() - 1, records.back()));
    ends.push_back(log.content().size());
  }
  const FileBytes before = log.content();
  bool is_exact = false;
  const FileBytes after = damaged(before, input, is_exact);
  const auto first = std::mismatch(before.begin(), before.end(), after.begin(), after.end()).first - before.begin();
  const auto whole = static_cast<std::uint64_t>(
      std::count_if(ends.begin(), ends.end(), [&](std::size_t end) { return end <= static_cast<std::size_t>(first); }));
  log.set_content(after);
  const StoredRecord read = log.open()->read();
  HORO_CHECK(is_exact ? read.revision == whole : read.revision >= whole);
  if (read.revision == whole && whole > 0) HORO_CHECK(read.bytes == records[whole - 1]);
  write_next(log);
  return whole > 0;
}

}  // namespace

bool fuzz_record_logs(std::span<const std::byte> bytes) {
  static const FuzzedLog log;
  FuzzInput input(bytes);
  return input.number(1) % 4 == 0 ? read_any(log, input) : read_damaged(log, input);
}

}  // namespace horo
