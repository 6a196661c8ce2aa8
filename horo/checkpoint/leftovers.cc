// What jobs that have ended have left in a folder of checkpoints.
//
// Where two names cannot be exchanged at once, a checkpoint that is replaced is out of the way (".old-...") while the
// new one gets its name. A job that is killed then leaves no checkpoint of that name: the old one gets it back.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>

#include "horo/base/say.h"
#include "horo/checkpoint/folder.h"

namespace horo::checkpoint {
namespace {

constexpr std::time_t kYoung = 10;  // seconds in which a folder may have no file that is locked yet

// The most that one of its files says of a lock.
LockResult locks_in(const OpenFolder& folder) {
  LockResult most = LockResult::kLocked;
  for (const std::string& file : names_in(folder)) {
    if (!is_part_file(file) && file != kHeld) continue;
    const Fd fd = open_file(folder, file);
    if (!fd.is_open()) continue;
    const LockResult found = probe_lock(fd);
    if (found == LockResult::kBusy) return found;
    if (found == LockResult::kUnsupported) most = found;
  }
  return most;
}

bool is_abandoned(const OpenFolder& parent, const std::string& name) {
  const OpenFolder folder = open_folder_in(parent, name);
  struct stat status {};
  if (::fstat(folder.fd.get(), &status) != 0 || std::time(nullptr) - status.st_mtime < kYoung) return false;
  return locks_in(folder) == LockResult::kLocked;
}

// A process writes a checkpoint of this name, or publishes it.
bool is_in_work(const OpenFolder& parent, const std::string& name, const std::vector<std::string>& names) {
  return std::ranges::any_of(names, [&](const std::string& other) {
    if (other != name && final_name_in(other, kTemporary) != name) return false;
    return locks_in(open_folder_in(parent, other)) == LockResult::kBusy;
  });
}

template <class Call>
void ignoring_errors(Call call) noexcept {
  try {
    call();
  } catch (const std::exception&) {  // it is tried again later
  }
}

// A folder that is removed is on the disk under its last name: the new checkpoint is there before the old one goes.
void settle(const OpenFolder& parent, const std::string& replaced, const std::string& name) {
  if (exists_in(parent, name)) {
    sync_folder(parent);
    discard_folder(parent, replaced, name);
  } else if (is_checkpoint(parent, replaced)) {
    rename_in(parent, replaced, name);
    sync_folder(parent);
  }
}

}  // namespace

void give_names_back(const OpenFolder& parent) noexcept {
  ignoring_errors([&] {
    const std::vector<std::string> names = names_in(parent);
    for (const std::string& replaced : names) {
      const std::optional<std::string> name = final_name_in(replaced, kReplaced);
      if (!name) continue;
      ignoring_errors([&] {
        if (!is_in_work(parent, *name, names)) settle(parent, replaced, *name);
      });
    }
  });
}

void remove_leftovers(const OpenFolder& parent) noexcept {
  give_names_back(parent);
  ignoring_errors([&] {
    for (const std::string& name : names_in(parent)) {
      if (name.starts_with(kRemoved)) remove_folder(parent, name);
      if (!name.starts_with(kTemporary)) continue;
      ignoring_errors([&] {
        if (is_abandoned(parent, name)) remove_folder(parent, name);
      });
    }
  });
}

}  // namespace horo::checkpoint
