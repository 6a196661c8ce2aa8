// RankSet: which of the world's ranks; 64 to a word, so that "all of them" is a count and a copy is cheap.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace horo {

class RankSet {
 public:
  explicit RankSet(int size) : size_(size), words_((static_cast<std::size_t>(size) + 63) / 64) {}

  // False if it was in already. 0 <= rank < size.
  bool insert(int rank) {
    std::uint64_t& word = words_[static_cast<std::size_t>(rank) / 64];
    const std::uint64_t bit = std::uint64_t{1} << (rank % 64);
    if ((word & bit) != 0) return false;
    word |= bit;
    ++count_;
    return true;
  }
  bool contains(int rank) const { return (words_[static_cast<std::size_t>(rank) / 64] >> (rank % 64) & 1) != 0; }
  bool empty() const { return count_ == 0; }
  bool full() const { return count_ == size_; }
  void clear() {
    words_.assign(words_.size(), 0);
    count_ = 0;
  }
  std::vector<int> ranks() const { return select(true); }     // ascending
  std::vector<int> missing() const { return select(false); }  // ascending

 private:
  std::vector<int> select(bool in) const {
    std::vector<int> ranks;
    for (int rank = 0; rank < size_; ++rank) {
      if (contains(rank) == in) ranks.push_back(rank);
    }
    return ranks;
  }

  int size_ = 0;
  int count_ = 0;
  std::vector<std::uint64_t> words_;
};

}  // namespace horo
