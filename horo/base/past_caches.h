// Copies that bypass the caches.
#pragma once

#include <cstddef>

namespace horo {

// memcpy() with stores that bypass the caches, for long data that this core does not use soon. Later stores of this
// thread become visible later. A plain copy where the processor has no such stores.
void copy_past_caches(std::byte* to, const std::byte* from, std::size_t bytes) noexcept;

}  // namespace horo
