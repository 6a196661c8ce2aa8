// A descriptor that a process passes to another one, by a socket of theirs.
#pragma once

namespace horo {

// In a packet of its own, which has one byte. Blocks as send() does. The caller keeps the descriptor. Throws
// std::system_error.
void pass_descriptor(int socket, int fd);

}  // namespace horo
