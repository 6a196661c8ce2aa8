// The job key of `horo run` in a process that has not inherited its descriptor.
#pragma once

namespace horo {

// Opens the key that `horo run` has given to the nearest ancestor of this process under this number; -1 if none has
// one. A launcher between `horo run` and the rank may close all descriptors when it starts the rank's process, as those
// in Python do. The kernel allows it to processes of the same user.
int open_key_of_ancestor(int fd);

}  // namespace horo
