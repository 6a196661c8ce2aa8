// The folder of a save: written under a name of its own beside the final one, and renamed when all of it is on the
// disk. So a folder with the final name is whole, whatever happens to processes and power.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "horo/checkpoint/files.h"
#include "horo/checkpoint/folder_names.h"
#include "horo/checkpoint/index.h"

namespace horo::checkpoint {

// Where a save goes. The parent is absolute, so that changes of the working folder have no effect.
struct SavePlace {
  std::string parent;  // "/ckpt"
  std::string name;    // "step-000000001"
};
// Throws std::invalid_argument: the path has no name, or one that begins with a dot, or too long a one.
SavePlace place_of(const std::string& path);

// Makes the parent, if it is missing, and opens it.
OpenFolder make_parent(const SavePlace& place);

// A folder in which parts are written.
struct SaveFolder {
  OpenFolder parent;
  OpenFolder folder;  // ".tmp-step-000000001-a1b2c3d4e5f60708" in it
  std::string temporary_name;
  std::string final_name;
  Fd held;  // rank 0: a file in the folder, locked from its making on, which shows others that the folder is in use
};
SaveFolder make_save_folder(const SavePlace& place);  // rank 0; the parent is made if it is missing
SaveFolder see_save_folder(const SavePlace& place, const std::string& temporary_name);

// How a save stands, as another rank than rank 0 sees it.
// Throws std::runtime_error: it cannot be seen, perhaps for a while.
enum class SaveEnd { kOpen, kPublishing, kPublished, kGone };
SaveEnd end_of(const SaveFolder& save);

// Rank 0: everything in the folder is on the disk but the index. A checkpoint with the final name is replaced; anything
// else with this name is an error. After an error the names are as before. `obsolete`: files to remove before.
void publish(const SaveFolder& save, const std::string& index, const std::vector<std::string>& obsolete);
// Rank 0, after a failure: removes what was written, and leaves the text for the other ranks. Before the next save it
// removes the text.
void leave_failure(const SaveFolder& save, const std::string& text) noexcept;
void remove_failure(const SaveFolder& save) noexcept;
// What leave_failure() has left; nothing: there is no such text.
std::optional<std::string> failure_in(const SaveFolder& save);

bool exists_in(const OpenFolder& parent, const std::string& name);
// The folder has an index, or nothing, and no file that horo does not make. Throws if it is no folder.
bool is_checkpoint(const OpenFolder& parent, const std::string& name);
// Throws std::runtime_error: what has this name is no checkpoint.
void check_replaced(const OpenFolder& parent, const std::string& name);
void rename_in(const OpenFolder& parent, const std::string& from, const std::string& to);

// Removes a checkpoint or an unfinished one: the files that horo makes, and the folder if nothing else is in it. Errors
// are ignored: it is tried again later.
void remove_folder(const OpenFolder& parent, const std::string& name) noexcept;
// The same, under a name by which a folder that is half removed is known.
void discard_folder(const OpenFolder& parent, const std::string& name, const std::string& final_name) noexcept;

// A checkpoint that a job was about to replace, and that has lost its name, gets it back; where the new one is there,
// the old one is removed. Called with the lock of the parent.
void give_names_back(const OpenFolder& parent) noexcept;
// The same, and removes what jobs that have ended have left: unfinished saves that no process writes, and checkpoints
// that were being removed. Called with the lock of the parent.
void remove_leftovers(const OpenFolder& parent) noexcept;

// The lock of a parent folder, held until it is destroyed.
class FolderLock {
 public:
  // Waits so long for a job that has it. Not is_held(): the file system has no locks. Throws std::runtime_error:
  // another job has it, with its name.
  FolderLock(const OpenFolder& parent, std::chrono::milliseconds patience);
  // Nothing: another job has it.
  static std::optional<FolderLock> try_take(const OpenFolder& parent);
  bool is_held() const { return fd_.is_open(); }
  bool is_of(const OpenFolder& parent) const;

 private:
  FolderLock() = default;
  Fd fd_;
  std::uint64_t device_ = 0;  // of the parent
  std::uint64_t inode_ = 0;
};

}  // namespace horo::checkpoint
