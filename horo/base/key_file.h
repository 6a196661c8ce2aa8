// The file of the job key: which files are safe to take it from.
#pragma once

#include <sys/types.h>

#include <string>

#include "horo/base/auth.h"

namespace horo {

struct KeyFileFacts {
  mode_t mode = 0;  // as in struct stat
  uid_t owner = 0, user = 0;
  bool is_read_only = false;  // its file system is mounted so
};

// Why the file is not safe, as what is expected; empty: it is. Only this user or root may be able to write it. Of this
// user's own file, no other user may read it. Of root's file, a group may: root chooses its members. All may where root
// has mounted it read-only, as container engines mount secrets.
std::string key_file_fault(const KeyFileFacts& facts);

// Follows links, since the secrets of Kubernetes are links: what counts is the file that is opened. Throws
// std::invalid_argument, which names HORO_KEY_FILE.
JobKey key_from_file(const char* path);

// The key in the descriptor with this number, which HORO_KEY_FD names, or in that of an ancestor. Reads at an offset
// and never moves the descriptor: a second session of this process reads the same key again. Throws
// std::invalid_argument.
JobKey key_from_inherited(const char* number);

}  // namespace horo
