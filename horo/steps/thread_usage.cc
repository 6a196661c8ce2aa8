#include "horo/steps/thread_usage.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <charconv>

#include "horo/base/forked.h"

namespace horo {
namespace {

// The second number of the file: nanoseconds of the thread in run queues.
std::int64_t run_queue_ns(int fd) {
  std::array<char, 96> text;
  const ssize_t size = fd < 0 ? -1 : ::pread(fd, text.data(), text.size(), 0);
  if (size <= 0) return kNotKnown;
  const char* const end = text.data() + size;
  std::int64_t ran = 0, waited = 0;
  const auto first = std::from_chars(text.data(), end, ran);
  if (first.ec != std::errc() || first.ptr == end) return kNotKnown;
  return std::from_chars(first.ptr + 1, end, waited).ec == std::errc() ? waited : kNotKnown;
}

}  // namespace

void ThreadUsage::begin() noexcept {
  close();
  schedstat_ = ::open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
  if (schedstat_ >= 0) own_descriptor(schedstat_);
}

Usage ThreadUsage::now() const noexcept {
  Usage usage;
  timespec time{};
  if (::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time) == 0) {
    usage.cpu_ns = std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
  }
  rusage counts{};
  if (::getrusage(RUSAGE_THREAD, &counts) == 0) usage.switches = counts.ru_nivcsw;
  usage.run_queue_ns = run_queue_ns(schedstat_);
  return usage;
}

void ThreadUsage::close() noexcept {
  if (schedstat_ >= 0 && give_up_descriptor(schedstat_)) ::close(schedstat_);
  schedstat_ = -1;
}

}  // namespace horo
