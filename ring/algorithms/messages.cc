#include "ring/algorithms/messages.h"

#include <algorithm>
#include <new>

namespace horo {

ScratchPool::Lease ScratchPool::take(std::size_t bytes) {
  std::unique_ptr<Memory> memory;
  {
    MutexLock lock(mutex_);
    const auto best = std::max_element(free_.begin(), free_.end(),
                                       [](const auto& a, const auto& b) { return a->size() < b->size(); });
    if (best != free_.end()) {
      memory = std::move(*best);
      free_.erase(best);
    }
  }
  if (!memory) memory = std::make_unique<Memory>();
  if (memory->size() < bytes) memory->resize(bytes);
  return Lease(*this, std::move(memory));
}

// Frees the memory if the list of free memory cannot grow.
void ScratchPool::give_back(std::unique_ptr<Memory> memory) noexcept {
  MutexLock lock(mutex_);
  try {
    free_.push_back(std::move(memory));
  } catch (const std::bad_alloc&) {
    memory.reset();
  }
}

Tag Messenger::tag(std::uint32_t number) const {
  return {collective_.channel, collective_.plan, number, collective_.key_hash};
}

Messenger::Op Messenger::send(int member, std::uint32_t number, std::span<const std::byte> out) const {
  return context_.transport.post_send(context_.members[static_cast<std::size_t>(member)], tag(number), out);
}

Messenger::Op Messenger::receive(int member, std::uint32_t number, std::span<std::byte> in) const {
  return context_.transport.post_recv(context_.members[static_cast<std::size_t>(member)], tag(number), in);
}

}  // namespace horo
