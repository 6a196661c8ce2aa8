// The last message of a process with a bug. No code here allocates or locks: the heap or a lock may be broken.
#include "horo/base/check.h"

#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdio>
#include <cstdlib>

namespace horo {
namespace {

// Independent values: a reader that sees a mix of two calls prints a wrong rank or epoch, with no other effect.
struct Context {
  std::atomic<int> rank{-1};
  std::atomic<int> size{0};
  std::atomic<unsigned> epoch{0};
};

Context& context() noexcept {
  static constinit Context instance;
  return instance;
}

void write_all(const char* text, std::size_t size) noexcept {
  while (size > 0) {
    const ssize_t written = ::write(STDERR_FILENO, text, size);
    if (written <= 0) return;
    text += written;
    size -= static_cast<std::size_t>(written);
  }
}

}  // namespace

void set_check_context(int rank, int size, unsigned epoch) noexcept {
  context().rank.store(rank, std::memory_order_relaxed);
  context().size.store(size, std::memory_order_relaxed);
  context().epoch.store(epoch, std::memory_order_relaxed);
}

void check_failed(const char* claim, const char* file, int line) noexcept {
  const int rank = context().rank.load(std::memory_order_relaxed);
  char process[64] = "no session yet";
  if (rank >= 0) {
    std::snprintf(process, sizeof process, "rank %d of %d, epoch %u", rank,
                  context().size.load(std::memory_order_relaxed), context().epoch.load(std::memory_order_relaxed));
  }
  char text[1024];
  const int length =
      std::snprintf(text, sizeof text, "horo: check failed at %s:%d (%s): %s\n", file, line, process, claim);
  if (length > 0) write_all(text, static_cast<std::size_t>(length) < sizeof text ? length : sizeof text - 1);
  std::abort();
}

}  // namespace horo
