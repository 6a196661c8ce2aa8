// RankBarrier: the barrier of a contestant's ranks, in a file that they map. The harness has a barrier of its own so
// that no measured time includes that of a library.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

namespace horo::bench {

class RankBarrier {
 public:
  static constexpr std::size_t kLineBytes = 128;  // per rank: two cache lines, because the prefetcher fetches pairs

  // Maps the file, which has kLineBytes zeros for each rank. Throws std::runtime_error.
  RankBarrier(const std::string& file, int rank, int size);
  ~RankBarrier();
  RankBarrier(const RankBarrier&) = delete;
  RankBarrier& operator=(const RankBarrier&) = delete;

  // Blocks until all ranks have called it as often. Spins while every rank has a core, else yields early.
  void wait();

 private:
  std::atomic<std::uint64_t>& line(int rank) const;

  const int rank_;
  const int size_;
  const int spins_;
  std::uint64_t rounds_ = 0;
  void* memory_ = nullptr;
};

}  // namespace horo::bench
