// The end of a process is told to others (its connections, its pidfd, its parent) after its memory was given back,
// which takes long if it had much. The words on a thread's robust list (the kernel's
// Documentation/locking/robust-futexes.rst) come first: before a thread lets go of the memory, each of them that still
// has its number gets FUTEX_OWNER_DIED.
//
// It is no pthread_mutex_t, whose links would lie in memory that peers write and this process follows: the list is our
// own, in private memory, and the word alone is shared.
#include "ring/shm/owner.h"

#include <sys/syscall.h>
#include <unistd.h>

namespace horo {
namespace {

long distance(const void* from, const void* to) {
  return static_cast<long>(reinterpret_cast<std::intptr_t>(to) - reinterpret_cast<std::intptr_t>(from));
}

}  // namespace

// Acquire: what the thread did before is visible.
bool has_died(const OwnerWord& word) noexcept {
  return (word.load(std::memory_order_acquire) & FUTEX_OWNER_DIED) != 0;
}

// On the list before it is ours, and ours no more before it is off the list: there is no moment at which a death is
// missed, and none that takes a word that somebody else holds.
OwnerHold::OwnerHold(OwnerWord& word) noexcept : word_(word) {
  entry_.next = &list_.list;
  list_.list.next = &entry_;
  list_.futex_offset = distance(&entry_, &word);
  if (::syscall(SYS_get_robust_list, 0, &former_, &former_bytes_) != 0) return;
  is_listed_ = ::syscall(SYS_set_robust_list, &list_, sizeof(list_)) == 0;
  if (is_listed_) word_.store(static_cast<std::uint32_t>(::syscall(SYS_gettid)), std::memory_order_release);
}

OwnerHold::~OwnerHold() {
  if (!is_listed_) return;
  word_.store(0, std::memory_order_release);
  ::syscall(SYS_set_robust_list, former_, former_bytes_);
}

}  // namespace horo
