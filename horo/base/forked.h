// What a fork leaves behind. A child of fork() has copies of our descriptors, which keep connections open after its
// parent's death, and of our objects, whose threads it does not have. So every descriptor of ours is on a list, which a
// forked child closes before fork() returns there, and what was made before the fork can tell that it is a copy.
#pragma once

#include <cstdint>

namespace horo {

// How often this process descends from one that used horo by fork(): an object made under another number is a copy.
std::uint32_t fork_generation() noexcept;

// The list of our descriptors. Any thread. own_descriptor() is for a descriptor just made; give_up_descriptor() is true
// if it was on the list, and then the caller has to close it, else somebody has done so already.
void own_descriptor(int fd) noexcept;
bool give_up_descriptor(int fd) noexcept;

}  // namespace horo
