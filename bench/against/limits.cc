#include "bench/against/limits.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <functional>
#include <new>
#include <span>
#include <system_error>
#include <thread>
#include <vector>

#include "bench/peers/harness.h"
#include "horo/base/shard.h"
#include "tools/horo/bench/world.h"
#include "tools/horo/machine/cores.h"

namespace horo::bench {
namespace {

constexpr int kFlights = 20'000;
constexpr int kSamples = 5;
constexpr std::size_t kFewestSweeps = 5, kMostSweeps = 500;
constexpr double kSampleSeconds = 0.005, kExchangeSeconds = 0.03;
constexpr std::size_t kBlockFloats = 1024;
constexpr std::size_t kPacketBytes = 65'483;             // of the loopback interface
constexpr float kOrdinary = 1;                           // zeros are written up to 15 % faster
constexpr std::size_t kQuantumBytes = 4 * kPacketBytes;  // of one call: whole packets are the fastest

void pin_to(int core) {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  CPU_SET(static_cast<std::size_t>(core), &mask);
  ::sched_setaffinity(0, sizeof(mask), &mask);
}

// A barrier for the threads of one measurement. Threads spin; each has a core.
class SpinBarrier {
 public:
  explicit SpinBarrier(int threads) : threads_(threads) {}
  void wait() {
    const int round = round_.load(std::memory_order_acquire);
    // The release store orders the arrivals of all threads before the next round.
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == threads_) {
      arrived_.store(0, std::memory_order_relaxed);
      round_.store(round + 1, std::memory_order_release);
      return;
    }
    while (round_.load(std::memory_order_acquire) == round) {
    }
  }

 private:
  const int threads_;
  std::atomic<int> arrived_ = 0, round_ = 0;
};

// Runs body(0) to body(threads - 1), each in a thread that is pinned to a core, and joins the threads.
void on_cores(int threads, const std::function<void(int)>& body) {
  const std::vector<int> cores = tools::allowed_cores();
  std::vector<std::jthread> all;
  for (int i = 0; i < threads; ++i) {
    all.emplace_back([&, i] {
      pin_to(cores[static_cast<std::size_t>(i) % cores.size()]);
      body(i);
    });
  }
}

double flag_flight() {
  struct alignas(128) Flag {
    std::atomic<int> value = 0;  // the only shared data
  };
  std::array<Flag, 2> flags;
  double seconds = 0;
  SpinBarrier barrier(2);
  on_cores(2, [&](int me) {
    auto& mine = flags[static_cast<std::size_t>(me)].value;
    auto& other = flags[static_cast<std::size_t>(1 - me)].value;
    barrier.wait();
    const TimePoint begin = Clock::now();
    for (int i = 1; i <= kFlights; ++i) {
      if (me == 0) mine.store(i, std::memory_order_release);
      while (other.load(std::memory_order_acquire) != i) {
      }
      if (me == 1) mine.store(i, std::memory_order_release);
    }
    if (me == 0) seconds = tools::seconds_since(begin) / (2 * kFlights);
  });
  return seconds;
}

// a[i] = b[i] = a[i] + b[i], and so on for more arrays.
[[gnu::always_inline]] inline void sum_to_all(const std::vector<float*>& arrays, Shard part) {
  float sum[kBlockFloats];
  for (std::size_t begin = part.begin; begin < part.begin + part.size; begin += kBlockFloats) {
    const std::size_t count = std::min(kBlockFloats, part.begin + part.size - begin);
    float* const a = arrays[0] + begin;
    float* const b = arrays[1] + begin;
    if (arrays.size() == 2) {
      for (std::size_t i = 0; i < count; ++i) a[i] = b[i] = a[i] + b[i];
      continue;
    }
    for (std::size_t i = 0; i < count; ++i) sum[i] = a[i] + b[i];
    for (std::size_t k = 2; k < arrays.size(); ++k) {
      for (std::size_t i = 0; i < count; ++i) sum[i] += arrays[k][begin + i];
    }
    for (float* const array : arrays) std::copy_n(sum, count, array + begin);
  }
}

using SumToAll = void (*)(const std::vector<float*>&, Shard);

void sum_plainly(const std::vector<float*>& arrays, Shard part) {
  sum_to_all(arrays, part);
}

#if defined(__x86_64__)
[[gnu::target("avx2")]] void sum_with_avx2(const std::vector<float*>& arrays, Shard part) {
  sum_to_all(arrays, part);
}
[[gnu::target("avx512f")]] void sum_with_avx512(const std::vector<float*>& arrays, Shard part) {
  sum_to_all(arrays, part);
}
SumToAll fastest_sum() {
  if (__builtin_cpu_supports("avx512f")) return sum_with_avx512;
  return __builtin_cpu_supports("avx2") ? sum_with_avx2 : sum_plainly;
}
#else
SumToAll fastest_sum() {
  return sum_plainly;
}
#endif

// The median time of one sweep of all threads over their parts. A sample is a series of sweeps of at least
// kSampleSeconds.
double repeated_sweep_seconds(const std::vector<float*>& arrays, std::size_t count) {
  const int threads = tools::usable_cores();
  const SumToAll sum = fastest_sum();
  std::vector<double> samples;
  int sweeps = 1;
  SpinBarrier barrier(threads);
  on_cores(threads, [&](int me) {
    const Shard part = shard_of(count, threads, me);
    for (int sample = -1; sample < kSamples; ++sample) {
      barrier.wait();
      const TimePoint begin = Clock::now();
      for (int i = 0; i < sweeps; ++i) sum(arrays, part);
      barrier.wait();
      const double seconds = tools::seconds_since(begin) / sweeps;
      if (me == 0 && sample >= 0) samples.push_back(seconds);
      if (me == 0 && sample < 0) sweeps = std::max(1, static_cast<int>(kSampleSeconds / seconds));
    }
  });
  return tools::median(samples);
}

// The median time of a single sweep, up to its slowest thread, over arrays that were rewritten before it. Each array is
// rewritten by one thread, as each contestant's rank rewrites its input; otherwise a thread's part would stay in the
// caches of its core.
double rewritten_sweep_seconds(const std::vector<float*>& arrays, std::size_t count) {
  const int threads = tools::usable_cores();
  const SumToAll sum = fastest_sum();
  std::vector<std::vector<double>> taken(static_cast<std::size_t>(threads));  // by thread; the first sweep is a trial
  std::size_t sweeps = 0;
  SpinBarrier barrier(threads);
  on_cores(threads, [&](int me) {
    const Shard part = shard_of(count, threads, me);
    std::vector<double>& mine = taken[static_cast<std::size_t>(me)];
    do {
      for (std::size_t i = static_cast<std::size_t>(me); i < arrays.size(); i += static_cast<std::size_t>(threads)) {
        std::fill_n(arrays[i], count, kOrdinary);
      }
      barrier.wait();
      const TimePoint begin = Clock::now();
      sum(arrays, part);
      mine.push_back(tools::seconds_since(begin));
      if (me == 0 && mine.size() == 1) sweeps = static_cast<std::size_t>(kSamples * kSampleSeconds / mine.front());
      barrier.wait();
    } while (mine.size() <= std::clamp(sweeps, kFewestSweeps, kMostSweeps));
  });
  std::vector<double> slowest = taken.front();
  for (const std::vector<double>& each : taken)
    std::ranges::transform(slowest, each, slowest.begin(), std::ranges::max);
  return tools::median({slowest.begin() + 1, slowest.end()});
}

[[noreturn]] void fail_limit(const char* what) {
  throw std::system_error(errno, std::generic_category(), std::string("the socket pair of the limit: ") + what);
}

std::array<tools::Descriptor, 2> loopback_pair() {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  const tools::Descriptor listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (::bind(listener.get(), any, length) != 0 || ::listen(listener.get(), 1) != 0) fail_limit("listen");
  if (::getsockname(listener.get(), any, &length) != 0) fail_limit("getsockname");
  std::array<tools::Descriptor, 2> ends;
  ends[0] = tools::Descriptor(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (::connect(ends[0].get(), any, length) != 0) fail_limit("connect");
  ends[1] = tools::Descriptor(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (!ends[1].is_open()) fail_limit("accept");
  const int on = 1;
  for (const tools::Descriptor& end : ends) ::setsockopt(end.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  return ends;
}

// The bytes that a call moved; 0 if it would block.
std::size_t moved(ssize_t result) {
  if (result < 0 && errno != EAGAIN && errno != EINTR) fail_limit("send or recv");
  return result < 0 ? 0 : static_cast<std::size_t>(result);
}

void exchange(int fd, std::span<const std::byte> given, std::span<std::byte> taken) {
  const std::size_t bytes = given.size();
  const bool is_two = bytes > kPacketBytes && bytes < 2 * kPacketBytes;  // the shorter packet first is the fastest
  const std::size_t first = is_two ? bytes - kPacketBytes : kQuantumBytes;
  for (std::size_t sent = 0, received = 0; sent < bytes || received < bytes;) {
    if (sent < bytes) {
      const std::size_t most = std::min(sent == 0 ? first : kQuantumBytes, bytes - sent);
      sent += moved(::send(fd, given.data() + sent, most, MSG_DONTWAIT | MSG_NOSIGNAL));
    }
    if (received < bytes) {
      const std::size_t most = std::min(kQuantumBytes, bytes - received);
      received += moved(::recv(fd, taken.data() + received, most, MSG_DONTWAIT));
    }
  }
}

}  // namespace

MemoryLimit::MemoryLimit(std::size_t bytes, int ranks)
    : count_(std::max<std::size_t>(bytes / sizeof(float), 1)), arrays_(std::max(ranks, 2)) {
  const std::size_t all = count_ * sizeof(float) * static_cast<std::size_t>(arrays_);
  void* const memory = ::mmap(nullptr, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  ::madvise(memory, all, MADV_HUGEPAGE);
  memory_ = static_cast<float*>(memory);
  std::fill_n(memory_, count_ * static_cast<std::size_t>(arrays_), kOrdinary);
}

MemoryLimit::~MemoryLimit() {
  ::munmap(memory_, count_ * sizeof(float) * static_cast<std::size_t>(arrays_));
}

double MemoryLimit::measure() {
  std::vector<float*> arrays;
  for (int i = 0; i < arrays_; ++i) arrays.push_back(memory_ + count_ * static_cast<std::size_t>(i));
  const bool is_alone = count_ * sizeof(float) >= HARNESS_TIMED_ALONE_BYTES;
  return std::max(flag_flight(), (is_alone ? rewritten_sweep_seconds : repeated_sweep_seconds)(arrays, count_));
}

SocketLimit::SocketLimit() : ends_(loopback_pair()) {}

double SocketLimit::measure(std::size_t bytes) {
  std::vector<double> samples;
  int exchanges = 1;
  SpinBarrier barrier(2);
  on_cores(2, [&](int me) {
    std::vector<std::byte> given(bytes, std::byte{1}), taken(bytes);
    for (int sample = -1; sample < kSamples; ++sample) {
      barrier.wait();
      const TimePoint begin = Clock::now();
      for (int i = 0; i < exchanges; ++i) exchange(ends_[static_cast<std::size_t>(me)].get(), given, taken);
      barrier.wait();
      const double seconds = tools::seconds_since(begin) / exchanges;
      if (me == 0 && sample >= 0) samples.push_back(seconds);
      if (me == 0 && sample < 0) exchanges = std::max(1, static_cast<int>(kExchangeSeconds / seconds));
    }
  });
  return tools::median(samples);
}

}  // namespace horo::bench
