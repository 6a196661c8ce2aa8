// What is left of a folder after a power cut, by two models. Both cut files to what fsync() or fdatasync() has seen. In
// one of them a folder has the entries that it had at its last fsync(), in the other one those that it has now: a file
// system may bring either to the disk.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

#include "tests/horo/checkpoint/system_calls.h"

namespace horo::test {

class PowerCut {
 public:
  explicit PowerCut(std::filesystem::path root);

  // To be called for each call.
  void follow(const SystemCall& call);
  // Writes what is left of the root to the folder, which is emptied before.
  void cut(const std::filesystem::path& to, bool loses_names);

 private:
  struct Entry {
    std::uint64_t id = 0;
    bool is_folder = false;
  };
  using Entries = std::map<std::string, Entry>;

  std::uint64_t id_of(std::uint64_t inode);
  Entries entries_now(const std::filesystem::path& folder);
  void copy_lost(std::uint64_t id, const std::filesystem::path& to);
  void copy_now(const std::filesystem::path& from, const std::filesystem::path& to);

  const std::filesystem::path root_;
  std::uint64_t next_id_ = 1;
  std::map<std::uint64_t, std::uint64_t> ids_;     // by inode, which is used again for another file
  std::map<std::uint64_t, std::string> contents_;  // on the disk, by id
  std::map<std::uint64_t, Entries> entries_;       // likewise
};

}  // namespace horo::test
