#include "horo/checkpoint/part_writer.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>

#include "horo/base/crc32c.h"
#include "horo/base/fail_point.h"

namespace horo::checkpoint {
namespace {

constexpr std::uint64_t kBehind = 64 * kBlockBytes;  // not yet on the disk, at most

void reserve_space(const Fd& fd, std::uint64_t bytes, const std::string& path) {
  int result = 0;
  do {
    result = ::fallocate(fd.get(), 0, 0, static_cast<off_t>(bytes));
  } while (result != 0 && errno == EINTR);
  if (result == 0 || errno == EOPNOTSUPP || errno == EINVAL || errno == ENOSYS) return;
  fail_file("cannot reserve the space of", path, errno);
}

// The kernel begins to write the range to the disk, and is waited for where the range lies far behind. An error that it
// tells is not told again by fdatasync(), whatever its number; these four say that it has not done what it was asked.
void push_out(const Fd& fd, std::uint64_t offset, std::uint64_t bytes, const std::string& path) {
  const auto push = [&](std::uint64_t at, std::uint64_t size, unsigned flags) {
    int result = 0;
    do {
      result = ::sync_file_range(fd.get(), static_cast<off_t>(at), static_cast<off_t>(size), flags);
    } while (result != 0 && errno == EINTR);
    if (result == 0 || errno == EINVAL || errno == ENOSYS || errno == EOPNOTSUPP || errno == ESPIPE) return;
    fail_file("cannot write to the disk", path, errno);
  };
  push(offset, bytes, SYNC_FILE_RANGE_WRITE);
  if (offset < kBehind) return;
  push(offset - kBehind, bytes, SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER);
}

}  // namespace

SavedPart write_part(const OpenFolder& folder, const OpenPart& part, const std::string& header,
                     std::span<const std::byte> data, const std::function<void(std::uint64_t bytes)>& before_block) {
  const std::string path = folder.path_of(part.file);
  SavedPart saved;
  saved.file = part.file;
  saved.bytes = header.size() + data.size();
  saved.header_bytes = header.size();
  const auto beginning = std::as_bytes(std::span(header));
  saved.header_crc = crc32c(beginning);
  reserve_space(part.fd, saved.bytes, path);
  write_all(part.fd, beginning, 0, path);
  std::uint64_t last_bytes = 0;
  for (std::size_t at = 0; at < data.size(); at += kBlockBytes) {
    before_block(last_bytes);
    fail_point("checkpoint.block");
    const auto block = data.subspan(at, std::min<std::size_t>(kBlockBytes, data.size() - at));
    saved.block_crcs.push_back(crc32c(block));
    write_all(part.fd, block, header.size() + at, path);
    push_out(part.fd, header.size() + at, block.size(), path);
    last_bytes = block.size();
  }
  before_block(last_bytes);
  sync_data(part.fd, path);
  return saved;
}

}  // namespace horo::checkpoint
