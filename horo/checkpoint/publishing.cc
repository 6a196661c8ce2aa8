// The end of a save: its folder gets the final name, or the reason why there is no checkpoint.
#include <fcntl.h>
#include <linux/fs.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <stdexcept>

#include "horo/checkpoint/folder.h"

namespace horo::checkpoint {
namespace {

constexpr std::uint64_t kMaxFailureBytes = 1 << 16;

// Exchanges two names at once. False: the kernel or the file system cannot, as that of NFS.
bool exchange_names(const OpenFolder& parent, const std::string& one, const std::string& other) {
  const int fd = parent.fd.get();
  if (::renameat2(fd, one.c_str(), fd, other.c_str(), RENAME_EXCHANGE) == 0) return true;
  if (errno == EINVAL || errno == ENOSYS || errno == EOPNOTSUPP) return false;
  fail_file("cannot exchange " + parent.path_of(one) + " and", parent.path_of(other), errno);
}

// The new names, and how to take them back.
class Renaming {
 public:
  explicit Renaming(const SaveFolder& save) : save_(save) {}

  // After an error the names are as before.
  void run() {
    const OpenFolder& parent = save_.parent;
    if (!exists_in(parent, save_.final_name)) {
      rename_in(parent, save_.temporary_name, save_.final_name);
      return;
    }
    check_replaced(parent, save_.final_name);
    is_exchanged_ = exchange_names(parent, save_.temporary_name, save_.final_name);
    if (is_exchanged_) return;
    const std::string replaced = replaced_name_for(save_.final_name);
    rename_in(parent, save_.final_name, replaced);
    try {
      rename_in(parent, save_.temporary_name, save_.final_name);
    } catch (const std::exception&) {
      rename_in(parent, replaced, save_.final_name);
      throw;
    }
    replaced_ = replaced;
  }

  void take_back() {
    if (is_exchanged_) {
      exchange_names(save_.parent, save_.temporary_name, save_.final_name);
      return;
    }
    rename_in(save_.parent, save_.final_name, save_.temporary_name);
    if (!replaced_.empty()) rename_in(save_.parent, replaced_, save_.final_name);
  }

  // When the new names are on the disk.
  void remove_old() noexcept {
    if (is_exchanged_) remove_folder(save_.parent, save_.temporary_name);
    if (!replaced_.empty()) discard_folder(save_.parent, replaced_, save_.final_name);
  }

 private:
  const SaveFolder& save_;
  std::string replaced_;  // the name that the checkpoint that is replaced has now
  bool is_exchanged_ = false;
};

// Nothing: it cannot be seen.
std::optional<SaveEnd> seen_end_of(const SaveFolder& save) noexcept {
  try {
    return end_of(save);
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

}  // namespace

void publish(const SaveFolder& save, const std::string& index, const std::vector<std::string>& obsolete) {
  put_text(save.folder, kIndexFile, index, true);
  for (const std::string& file : obsolete) ::unlinkat(save.folder.fd.get(), file.c_str(), 0);
  ::unlinkat(save.folder.fd.get(), kHeld, 0);
  put_text(save.folder, kPublishing, "", false);
  sync_folder(save.folder);
  Renaming renaming(save);
  renaming.run();
  try {
    sync_folder(save.parent);
  } catch (const std::exception&) {
    renaming.take_back();
    throw;
  }
  ::unlinkat(save.folder.fd.get(), kPublishing, 0);
  renaming.remove_old();
}

// The text first: a rank that meets the rest of it finds the text. On a full disk there is room for it afterwards.
void leave_failure(const SaveFolder& save, const std::string& text) noexcept {
  const bool has_other_name = seen_end_of(save) != SaveEnd::kOpen;
  const auto leave = [&] {
    try {
      put_text(save.folder, kFailure, text, false);
      return true;
    } catch (const std::exception&) {
      return false;
    }
  };
  const bool is_left = leave();
  if (has_other_name) return;
  try {
    for (const std::string& name : names_in(save.folder)) {
      if (name != kFailure && name != kHeld) ::unlinkat(save.folder.fd.get(), name.c_str(), 0);
    }
  } catch (const std::exception&) {  // they are removed with the folder, later
  }
  if (!is_left && !leave()) remove_folder(save.parent, save.temporary_name);  // which the other ranks see
}

void remove_failure(const SaveFolder& save) noexcept {
  ::unlinkat(save.folder.fd.get(), kFailure, 0);
  if (seen_end_of(save) == SaveEnd::kOpen) remove_folder(save.parent, save.temporary_name);
}

std::optional<std::string> failure_in(const SaveFolder& save) {
  const Fd fd = open_file(save.folder, kFailure);
  if (!fd.is_open()) return std::nullopt;
  return text_in_file(fd, save.folder.path_of(kFailure), kMaxFailureBytes);
}

}  // namespace horo::checkpoint
