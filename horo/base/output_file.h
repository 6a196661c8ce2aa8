// Files that horo writes for its user, in folders that other users may write too.
#pragma once

#include <sys/types.h>

#include <string>

namespace horo {

// Opens a file for writing, or makes it with this mode, less the umask. What it has is left. The path is taken from the
// open folder, or as it is without one (AT_FDCWD). A link with this name is not followed, and a file of another user or
// with several names is not opened: another user may have put them there. A device is. The caller closes the
// descriptor. Throws std::system_error or, for what is refused, std::invalid_argument with a sentence without the path.
int open_output_file(int folder, const std::string& path, mode_t mode);

// Opens a file that one process alone writes, and empties it. A job that a rank starts inherits its settings: two
// processes must not write to one file. busy: the text of the exception if another process does. Throws as above.
int open_output_alone(const std::string& path, const char* busy);

// Opens a folder in which files are written. It may be a link of this user or of root. The same of the rest.
int open_output_folder(const std::string& path);

}  // namespace horo
