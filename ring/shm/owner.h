// The owner word of a rank: a word in memory that the ranks of a host share, by which they see at once that one died.
// Nobody waits at it: waits for other things look at it.
#pragma once

#include <linux/futex.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace horo {

// 0: nobody says, and nothing follows from it. Else whose it is is the kernel's affair: thread ids are those of a pid
// namespace.
using OwnerWord = std::atomic<std::uint32_t>;
static_assert(OwnerWord::is_always_lock_free && sizeof(OwnerWord) == 4, "the kernel writes it too");

// Whether the thread that held the word has ended without giving it back: its process died, or became another one.
bool has_died(const OwnerWord& word) noexcept;

// The calling thread holds the word, which was 0, until the destructor, which runs in the same thread while the word is
// still mapped. A forked child holds nothing. At most one at a time in a thread; meanwhile the thread locks no robust
// mutex. Where the kernel knows no robust futexes the word stays 0.
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
  robust_list_head* former_ = nullptr;  // the C library's
  std::size_t former_bytes_ = 0;
  bool is_listed_ = false;
};

}  // namespace horo
