#include "elastic/service/record_entry.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <system_error>
#include <vector>

#include "horo/base/crc32c.h"

namespace horo {
namespace {

constexpr std::uint32_t kEntryMagic = 0x474f4c52;  // "RLOG"
constexpr std::uint32_t kEntryVersion = 1;

std::array<std::byte, kEntryHeaderBytes> entry_header(std::uint64_t revision, std::span<const std::byte> bytes) {
  ByteWriter out;
  out.u32(kEntryMagic);
  out.u32(kEntryVersion);
  out.u64(bytes.size());
  out.u64(revision);
  out.u32(crc32c(bytes, crc32c(out.bytes())));
  std::array<std::byte, kEntryHeaderBytes> header{};
  std::copy_n(out.bytes().begin(), header.size(), header.begin());
  return header;
}

// Fewer bytes than asked for only at the end of the file.
std::size_t read_at(int fd, std::uint64_t offset, std::span<std::byte> bytes) {
  std::size_t have = 0;
  while (have < bytes.size()) {
    const auto left = bytes.subspan(have);
    const ssize_t got = ::pread(fd, left.data(), left.size(), static_cast<off_t>(offset + have));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_storage(errno, "reading");
    if (got == 0) break;
    have += static_cast<std::size_t>(got);
  }
  return have;
}

void write_at(int fd, std::uint64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t put = ::pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) fail_storage(errno, "writing");
    offset += static_cast<std::uint64_t>(put);
    bytes = bytes.subspan(static_cast<std::size_t>(put));
  }
}

}  // namespace

void fail_storage(int error, const std::string& what) {
  throw std::system_error(error, std::generic_category(), "record log: " + what);
}

void write_entry(int fd, std::uint64_t offset, std::uint64_t revision, std::span<const std::byte> bytes) {
  write_at(fd, offset, entry_header(revision, bytes));
  write_at(fd, offset + kEntryHeaderBytes, bytes);
  if (::fdatasync(fd) != 0) fail_storage(errno, "syncing");
}

std::optional<StoredRecord> entry_at(int fd, std::uint64_t offset, std::uint64_t end, std::uint64_t before) {
  std::array<std::byte, kEntryHeaderBytes> header{};
  if (read_at(fd, offset, header) != header.size()) return std::nullopt;
  ByteReader in(header);
  const std::uint32_t magic = in.u32(), version = in.u32();
  const std::uint64_t size = in.u64(), revision = in.u64();
  if (magic != kEntryMagic || version != kEntryVersion || revision == 0) return std::nullopt;
  if (before != 0 && revision != before + 1) return std::nullopt;
  if (size > kMaxRecordBytes || size > end - offset - header.size()) return std::nullopt;
  StoredRecord record{revision, std::vector<std::byte>(size)};
  if (read_at(fd, offset + header.size(), record.bytes) != size) return std::nullopt;
  if (entry_header(revision, record.bytes) != header) return std::nullopt;
  return record;
}

}  // namespace horo
