// Support for fork(). A child of fork() has copies of horo's descriptors, which would keep connections open after the
// death of the parent, and of horo's objects, without their threads. So a list holds all of horo's descriptors, and a
// forked child closes them before fork() returns in it; an object made before the fork can detect that it is a copy.
#pragma once

#include <cstdint>

namespace horo {

// The number of forks between the first process that used horo and this one: an object made under another number is a
// copy.
std::uint32_t fork_generation() noexcept;

// The list of horo's descriptors. Any thread. own_descriptor() adds a new descriptor; give_up_descriptor() returns true
// if the descriptor was on the list, and then the caller must close it; otherwise it has been closed already.
void own_descriptor(int fd) noexcept;
bool give_up_descriptor(int fd) noexcept;

}  // namespace horo
