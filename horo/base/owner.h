// The owner word of a rank: a word in memory that processes of a host share. It shows the death of its holder before
// the kernel frees the process's memory. Waits for other events poll it, and one thread may sleep on it.
#pragma once

#include <linux/futex.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace horo {

// 0: not held, which is no evidence of a death. Otherwise it has the thread id of its holder. Only the kernel may
// interpret that id: thread ids are valid within a pid namespace.
using OwnerWord = std::atomic<std::uint32_t>;
static_assert(OwnerWord::is_always_lock_free && sizeof(OwnerWord) == 4, "the kernel writes the word too");

// Whether the thread that held the word has ended without releasing it: its process died or called exec.
bool has_died(const OwnerWord& word) noexcept;

// Blocks while the word is held. True: the holder has died; false: it has released the word, or `is_cancelled` was true
// when wake_waiter() was called. One thread may wait for a word; it may map the word for reading only.
bool wait_for_death(const OwnerWord& word, const std::atomic<bool>& is_cancelled) noexcept;
// Wakes a thread that sleeps in wait_for_death(); one that is about to sleep misses it.
void wake_waiter(const OwnerWord& word) noexcept;

// Holds a word, which was 0, for the calling thread until the destructor. The destructor has to run in the same thread
// while the word is still mapped. A forked child holds nothing. A thread may hold one word at a time, and must not lock
// a robust mutex meanwhile. If the kernel has no robust futexes, the word stays 0.
class OwnerHold {
 public:
  explicit OwnerHold(OwnerWord& word) noexcept;
  ~OwnerHold();
  OwnerHold(const OwnerHold&) = delete;
  OwnerHold& operator=(const OwnerHold&) = delete;

 private:
  OwnerWord& word_;
  robust_list entry_{};
  robust_list_head list_{};
  robust_list_head* former_ = nullptr;  // the C library's list
  std::size_t former_bytes_ = 0;
  bool is_listed_ = false;
};

}  // namespace horo
