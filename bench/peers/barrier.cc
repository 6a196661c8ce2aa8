#include "bench/peers/barrier.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>

namespace horo::bench {
namespace {

constexpr int kSpinsWithCore = 20'000;
constexpr int kSpinsWithout = 100;

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

RankBarrier::RankBarrier(const std::string& file, int rank, int size)
    : rank_(rank),
      size_(size),
      spins_(size <= ::sysconf(_SC_NPROCESSORS_ONLN) ? kSpinsWithCore : kSpinsWithout),
      memory_(MAP_FAILED) {
  const int fd = ::open(file.c_str(), O_RDWR | O_CLOEXEC);
  if (fd >= 0) {
    memory_ = ::mmap(nullptr, kLineBytes * static_cast<std::size_t>(size), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    ::close(fd);
  }
  if (memory_ == MAP_FAILED) throw std::runtime_error("the barrier's file " + file + ": " + std::strerror(errno));
}

RankBarrier::~RankBarrier() {
  ::munmap(memory_, kLineBytes * static_cast<std::size_t>(size_));
}

// The release store of a rank's counter orders its earlier writes before the other ranks' acquire loads.
std::atomic<std::uint64_t>& RankBarrier::line(int rank) const {
  auto* bytes = static_cast<std::byte*>(memory_) + kLineBytes * static_cast<std::size_t>(rank);
  return *reinterpret_cast<std::atomic<std::uint64_t>*>(bytes);
}

void RankBarrier::wait() {
  line(rank_).store(++rounds_, std::memory_order_release);
  for (int other = 0; other < size_; ++other) {
    for (int polls = 0; line(other).load(std::memory_order_acquire) < rounds_; ++polls) {
      if (polls < spins_) {
        relax();
      } else {
        ::sched_yield();
      }
    }
  }
}

}  // namespace horo::bench
