#include <algorithm>
#include <atomic>
#include <thread>

#include "horo/base/mutex.h"
#include "tests/proof/run_program.h"

namespace horo::proof {

void ProgramResults::add(const ProgramResults& other) {
  for (const auto& [end, count] : other.ends) ends[end] += count;
  longest = std::max(longest, other.longest);
  wrong.insert(wrong.end(), other.wrong.begin(), other.wrong.end());
}

ProgramResults run_programs(const ProgramOptions& options) {
  constexpr std::size_t kEnough = 20;  // faults after which no further program is started
  ProgramResults all;
  Mutex mutex;
  std::atomic<std::uint64_t> next{0};  // numbers programs; orders nothing
  std::atomic<bool> has_enough{false};
  std::vector<std::jthread> threads;
  for (int i = 0; i < options.at_once; ++i) {
    threads.emplace_back([&] {
      for (std::uint64_t at = next++; at < options.count && !has_enough; at = next++) {
        const ProgramResults one = run_program(draw_program(options.seed + at), options.stall_limit);
        MutexLock lock(mutex);
        all.add(one);
        ++all.ends[one.wrong.empty() ? "programs that ended as they should" : "programs that did not"];
        has_enough = all.wrong.size() > kEnough;
      }
    });
  }
  threads.clear();
  return all;
}

}  // namespace horo::proof
