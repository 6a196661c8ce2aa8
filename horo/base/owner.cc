// The connections, the pidfd and the parent of a dead process report the death only after the kernel has freed its
// memory, which takes long for a large process. The kernel handles a thread's robust list earlier
// (Documentation/locking/ robust-futexes.rst): it sets FUTEX_OWNER_DIED in each word on the list that still has the
// thread's id.
//
// A pthread_mutex_t would put the list's links into shared memory, where a faulty peer could overwrite pointers that
// this process follows. So the list is our own, in private memory; only the word is shared.
#include "horo/base/owner.h"

#include <sys/syscall.h>
#include <unistd.h>

namespace horo {
namespace {

long distance(const void* from, const void* to) {
  return static_cast<long>(reinterpret_cast<std::intptr_t>(to) - reinterpret_cast<std::intptr_t>(from));
}

}  // namespace

// Acquire: everything that the thread wrote before its death is visible.
bool has_died(const OwnerWord& word) noexcept {
  return (word.load(std::memory_order_acquire) & FUTEX_OWNER_DIED) != 0;
}

// With the flag of waiters the kernel wakes one when it marks the word. A word that was changed before the call puts no
// thread to sleep.
bool wait_for_death(const OwnerWord& word, const std::atomic<bool>& is_cancelled) noexcept {
  while (!is_cancelled) {
    const std::uint32_t value = word.load(std::memory_order_acquire);
    if ((value & FUTEX_OWNER_DIED) != 0) return true;
    if (value == 0) return false;
    ::syscall(SYS_futex, &word, FUTEX_WAIT, value, nullptr, nullptr, 0);
  }
  return false;
}

void wake_waiter(const OwnerWord& word) noexcept {
  ::syscall(SYS_futex, &word, FUTEX_WAKE, 1, nullptr, nullptr, 0);
}

// The word is put on the list before it is held, and released before it is taken off. So no death is missed, and the
// kernel marks no word that another thread holds.
OwnerHold::OwnerHold(OwnerWord& word) noexcept : word_(word) {
  entry_.next = &list_.list;
  list_.list.next = &entry_;
  list_.futex_offset = distance(&entry_, &word);
  if (::syscall(SYS_get_robust_list, 0, &former_, &former_bytes_) != 0) return;
  is_listed_ = ::syscall(SYS_set_robust_list, &list_, sizeof(list_)) == 0;
  const auto holder = static_cast<std::uint32_t>(::syscall(SYS_gettid));
  if (is_listed_) word_.store(holder | FUTEX_WAITERS, std::memory_order_release);
}

OwnerHold::~OwnerHold() {
  if (!is_listed_) return;
  word_.store(0, std::memory_order_release);
  wake_waiter(word_);
  ::syscall(SYS_set_robust_list, former_, former_bytes_);
}

}  // namespace horo
