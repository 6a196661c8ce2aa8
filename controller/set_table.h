// SetTable: the process sets that exist at this place in the stream; the same on all ranks. Set 0 is the world.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "controller/rank_set.h"

namespace horo {

// By rank: the first process set that it knows. A rank that has joined a running job knows those that were added since,
// and takes no part in the end of others.
using FirstSets = std::vector<std::uint32_t>;
// Those of the next epoch, a world of `size` ranks. rank_of: by rank of this epoch, the rank in the next one, or -1:
// lost. next: the number of the next set.
FirstSets in_next_epoch(const FirstSets& first, int size, const std::vector<int>& rank_of, std::uint32_t next);

struct KnownSet {
  std::string name;         // given by the user; may be empty
  std::vector<int> ranks;   // world ranks, ascending
  RankSet members;          // the same ranks
  bool shrinks = false;     // in an elastic job it goes on when it has lost members
  bool by_members = false;  // its members alone add and remove it
};

class SetTable {
 public:
  explicit SetTable(int size);
  // The sets of the next epoch, as in_next_epoch() above. A set that has lost a member goes on with the others if it
  // shrinks; else it is removed.
  SetTable in_next_epoch(int size, const std::vector<int>& rank_of) const;

  // The sets that a rank which joins finds there, by number, but for the world.
  SetTable(FirstSets first, std::uint32_t next, const std::map<std::uint32_t, KnownSet>& sets);

  std::uint32_t next() const { return next_; }  // number of the next set
  void add(std::string name, std::vector<int> ranks, bool shrinks = false, bool by_members = false);
  void remove(std::uint32_t set) { sets_.erase(set); }
  // The set with this number; null if it does not exist.
  const KnownSet* find(std::uint32_t set) const;
  // True if it was removed.
  bool existed(std::uint32_t set) const { return set < next_ && find(set) == nullptr; }
  // The set with exactly these ranks that all ranks of the world have added.
  std::optional<std::uint32_t> find(const std::vector<int>& ranks) const;
  // The set of this name that its members have added.
  std::optional<std::uint32_t> find_of_members(const std::string& name) const;
  const std::map<std::uint32_t, KnownSet>& all() const { return sets_; }
  bool knows(int rank, std::uint32_t set) const { return first_[static_cast<std::size_t>(rank)] <= set; }
  RankSet ranks_that_know(std::uint32_t set) const;

 private:
  int size_;
  FirstSets first_;
  std::uint32_t next_ = 0;
  std::map<std::uint32_t, KnownSet> sets_;
};

// "process set 'tp0'"; "process set 1" if it has no name; "the world" for set 0.
std::string set_text(std::uint32_t set, const std::string& name);
// The suffix of "tensor 'x'": " of process set 'tp0'"; empty for the world.
std::string of_set_text(std::uint32_t set, const std::string& name);

}  // namespace horo
