// ContestBarrier: the barrier of a contestant's ranks, in a file that they map. It is the harness's, so that nobody's
// own barrier is in a time.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

namespace horo {

class ContestBarrier {
 public:
  static constexpr std::size_t kLineBytes = 128;  // of each rank: two cache lines, which are fetched in pairs

  // The file has kLineBytes zeros for each rank. Throws std::runtime_error.
  ContestBarrier(const std::string& file, int rank, int size);
  ~ContestBarrier();
  ContestBarrier(const ContestBarrier&) = delete;
  ContestBarrier& operator=(const ContestBarrier&) = delete;

  // Spins where every rank has a core; yields soon where not.
  void meet();

 private:
  std::atomic<std::uint64_t>& line(int rank) const;

  const int rank_;
  const int size_;
  const int spins_;
  std::uint64_t meetings_ = 0;
  void* memory_ = nullptr;
};

}  // namespace horo
