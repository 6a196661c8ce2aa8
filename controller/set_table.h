// SetTable: the sets of ranks that exist, as the stream made them; the same on all ranks. Set 0 is the world.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "controller/rank_set.h"

namespace horo {

struct KnownSet {
  std::string name;        // as its makers called it; may be empty
  std::vector<int> ranks;  // world ranks, ascending
  RankSet members;         // the same
};

class SetTable {
 public:
  explicit SetTable(int size);

  std::uint32_t next() const { return next_; }  // the number of the set that is added next
  void add(std::string name, std::vector<int> ranks);
  void remove(std::uint32_t set) { sets_.erase(set); }
  // Null if it does not exist (any more).
  const KnownSet* find(std::uint32_t set) const;
  bool existed(std::uint32_t set) const { return set < next_ && find(set) == nullptr; }
  // The set of just these ranks.
  std::optional<std::uint32_t> find(const std::vector<int>& ranks) const;
  const std::map<std::uint32_t, KnownSet>& all() const { return sets_; }

 private:
  const int size_;
  std::uint32_t next_ = 0;
  std::map<std::uint32_t, KnownSet> sets_;
};

// "process set 'tp0'"; "process set 1" where it has no name; "the world".
std::string set_text(std::uint32_t set, const std::string& name);
// After "tensor 'x'": " of process set 'tp0'"; nothing for the world.
std::string of_set_text(std::uint32_t set, const std::string& name);

}  // namespace horo
