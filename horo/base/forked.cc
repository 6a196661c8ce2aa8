// The list is a bitmap with one bit per descriptor, because a forked child may neither lock nor allocate. It belongs to
// the process and not to a session, as descriptors do.
#include "horo/base/forked.h"

#include <pthread.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstddef>

namespace horo {
namespace {

// The kernel's own default for the highest limit of descriptors (fs.nr_open). Beyond it a descriptor is not listed: the
// child keeps its copy, and a death is detected by the pidfd or by silence.
constexpr std::size_t kMaxDescriptors = 1 << 20;
constexpr std::size_t kBits = 64;

struct Process {
  // Bits are independent. The thread that clears a bit closes the descriptor, so an atomic exchange decides which one
  // does; the operations order nothing else.
  std::array<std::atomic<std::uint64_t>, kMaxDescriptors / kBits> owned{};
  std::atomic<std::size_t> used_words{0};    // only grows; orders nothing
  std::atomic<std::uint32_t> generation{0};  // written by a child that has one thread
};

Process& process() noexcept {
  static constinit Process instance;
  return instance;
}

// Runs in the child before fork() returns, so it calls only functions that are safe in a signal handler.
void close_all_in_child() noexcept {
  Process& mine = process();
  mine.generation.fetch_add(1, std::memory_order_relaxed);
  const std::size_t words = mine.used_words.load(std::memory_order_relaxed);
  for (std::size_t at = 0; at < words; ++at) {
    const std::uint64_t bits = mine.owned[at].exchange(0, std::memory_order_relaxed);
    for (std::size_t bit = 0; bit < kBits; ++bit) {
      if ((bits >> bit & 1) != 0) ::close(static_cast<int>(at * kBits + bit));
    }
  }
}

// Initialised when the process starts, not with the first descriptor: a child forked during the initialisation would
// wait for a thread that it does not have.
[[maybe_unused]] const bool kWatchesForks = ::pthread_atfork(nullptr, nullptr, close_all_in_child) == 0;

}  // namespace

std::uint32_t fork_generation() noexcept {
  return process().generation.load(std::memory_order_relaxed);
}

void own_descriptor(int fd) noexcept {
  const auto at = static_cast<std::size_t>(fd);
  if (fd < 0 || at >= kMaxDescriptors) return;
  Process& mine = process();
  std::size_t words = mine.used_words.load(std::memory_order_relaxed);
  while (words <= at / kBits && !mine.used_words.compare_exchange_weak(words, at / kBits + 1)) {
  }
  mine.owned[at / kBits].fetch_or(std::uint64_t{1} << (at % kBits), std::memory_order_relaxed);
}

bool give_up_descriptor(int fd) noexcept {
  const auto at = static_cast<std::size_t>(fd);
  if (fd < 0) return false;
  if (at >= kMaxDescriptors) return true;
  const std::uint64_t bit = std::uint64_t{1} << (at % kBits);
  return (process().owned[at / kBits].fetch_and(~bit, std::memory_order_relaxed) & bit) != 0;
}

}  // namespace horo
