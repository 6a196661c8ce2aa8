// Files of checkpoints: calls of the kernel that name the file in their errors, follow no links, and go on after a
// signal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ring/os/socket.h"

namespace horo::checkpoint {

// A folder, and the path that errors name it by.
struct OpenFolder {
  Fd fd;
  std::string path;
  // "/ckpt/step-1/index.json".
  std::string path_of(const std::string& name) const { return path + "/" + name; }
};

// Throws std::runtime_error: "cannot write /ckpt/x: No space left on device", from errno or `error`.
[[noreturn]] void fail_file(const std::string& what, const std::string& path, int error);

// follows: the last part of the path may be a link.
OpenFolder open_folder(const std::string& path, bool follows);
OpenFolder open_folder_in(const OpenFolder& parent, const std::string& name);
// A new folder. Throws if the name is there.
void make_folder_in(const OpenFolder& parent, const std::string& name);
// Makes the folder, and those above it that are missing; each is on the disk then.
void make_folders(const std::string& path);
// Of files and folders, in no order.
std::vector<std::string> names_in(const OpenFolder& folder);

// A new file for writing. A file with this name is an error.
Fd create_file(const OpenFolder& folder, const std::string& name);
// For reading: a regular file, and no link. Not open: there is no file with this name.
Fd open_file(const OpenFolder& folder, const std::string& name);
std::uint64_t size_of_file(const Fd& fd, const std::string& path);

void write_all(const Fd& fd, std::span<const std::byte> bytes, std::uint64_t offset, const std::string& path);
// Throws if the file ends before.
void read_all(const Fd& fd, std::span<std::byte> bytes, std::uint64_t offset, const std::string& path);
// The file as a text. Throws if it has more than `most` bytes.
std::string text_in_file(const Fd& fd, const std::string& path, std::uint64_t most);

// After an error these are never called again for the same file: the kernel may have dropped what it could not write.
void sync_data(const Fd& fd, const std::string& path);
void sync_folder(const OpenFolder& folder);

// A new file with this text, on the disk if it is to be synced. Others see it with all of its text.
void put_text(const OpenFolder& folder, const std::string& name, const std::string& text, bool is_synced);

// Locks of the kernel, which end with the process: flock() of an open file. The holder has the file open for writing.
enum class LockResult { kLocked, kBusy, kUnsupported };
LockResult try_lock(const Fd& fd) noexcept;
// Whether a process holds the lock, by a file that is open for reading: kBusy. Several processes may ask at a time.
// kLocked: none does; until this file is closed, no other process takes the lock.
LockResult probe_lock(const Fd& fd) noexcept;

}  // namespace horo::checkpoint
