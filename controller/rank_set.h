// RankSet: a set of ranks of the world, as a bitmap, so that comparisons and copies are cheap.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace horo {

class RankSet {
 public:
  explicit RankSet(int size) : size_(size), words_((static_cast<std::size_t>(size) + 63) / 64) {}
  RankSet(int size, const std::vector<int>& ranks) : RankSet(size) {
    for (const int rank : ranks) insert(rank);
  }

  // Returns false if the set contains it already. 0 <= rank < size.
  bool insert(int rank) {
    std::uint64_t& word = words_[static_cast<std::size_t>(rank) / 64];
    const std::uint64_t bit = std::uint64_t{1} << (rank % 64);
    if ((word & bit) != 0) return false;
    word |= bit;
    ++count_;
    return true;
  }
  // Returns false if the set does not contain it.
  bool erase(int rank) {
    std::uint64_t& word = words_[static_cast<std::size_t>(rank) / 64];
    const std::uint64_t bit = std::uint64_t{1} << (rank % 64);
    if ((word & bit) == 0) return false;
    word &= ~bit;
    --count_;
    return true;
  }
  bool contains(int rank) const { return (words_[static_cast<std::size_t>(rank) / 64] >> (rank % 64) & 1) != 0; }
  bool empty() const { return count_ == 0; }
  int count() const { return count_; }
  bool full() const { return count_ == size_; }
  void clear() {
    words_.assign(words_.size(), 0);
    count_ = 0;
  }
  std::vector<int> ranks() const { return select(true); }     // ascending
  std::vector<int> missing() const { return select(false); }  // the ranks that it does not contain, ascending

  // The other set must be of the same world.
  bool covers(const RankSet& o) const {
    for (std::size_t i = 0; i < words_.size(); ++i) {
      if ((o.words_[i] & ~words_[i]) != 0) return false;
    }
    return true;
  }
  bool meets(const RankSet& o) const {
    for (std::size_t i = 0; i < words_.size(); ++i) {
      if ((o.words_[i] & words_[i]) != 0) return true;
    }
    return false;
  }
  void insert(const RankSet& o) {
    for (const int rank : o.ranks()) insert(rank);
  }
  RankSet without(const RankSet& o) const {
    RankSet rest(size_);
    for (const int rank : ranks()) {
      if (!o.contains(rank)) rest.insert(rank);
    }
    return rest;
  }
  bool operator==(const RankSet&) const = default;

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
