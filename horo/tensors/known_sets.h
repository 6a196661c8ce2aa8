// The process sets of a session, as this rank knows them: which exist, who is in them, and what is asked of them at the
// moment. Every rank of the world knows every set, because all of them add and remove it together.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "horo/base/config.h"
#include "horo/base/tensor_spec.h"

namespace horo {

struct SetInfo {
  std::uint32_t number = 0;  // 0 is the world; a number is never used twice
  std::string name;
  std::vector<int> ranks;  // of the world, ascending
  int rank = -1;           // this rank's inside the set; -1: it is not in it
  int size() const { return static_cast<int>(ranks.size()); }
};

// "process set 'evens'", "process set 2" where that is its name, or "the world": for messages.
std::string describe(const SetInfo& set);

// Not locked: it belongs to an tensor_table.
class KnownSets {
 public:
  explicit KnownSets(const Config& config);  // the world alone

  // The set; throws std::invalid_argument where there is none of that number, or none any more.
  const SetInfo& find(std::uint32_t set) const;
  // The same, and this rank is in it.
  const SetInfo& find_mine(std::uint32_t set) const;

  // ---- What the coordinator says.
  void add(std::uint32_t set, std::string name, std::vector<int> ranks);
  void remove(std::uint32_t set);

  // ---- What callers ask for: a tensor of kind kAddSet, kRemoveSet or kJoin. Others are none of its business.

  // Throws std::invalid_argument where it cannot be: no ranks or no such ranks, the same ranks twice, too many sets, no
  // such set, asked for already.
  void check_request(const TensorSpec& spec) const;
  void add_request(const TensorSpec& spec);
  void end_request(const TensorSpec& spec);

  // This rank has joined the set, and not all others have.
  bool has_joined(std::uint32_t set) const { return joined_.contains(set); }

 private:
  void check_new(const std::string& name, const std::vector<std::int64_t>& ranks) const;

  const int rank_;
  const int world_size_;
  const std::size_t most_;
  std::map<std::uint32_t, SetInfo> sets_;
  std::uint32_t last_ = 0;                         // highest number that there was
  std::set<std::vector<std::int64_t>> requested_;  // ranks of sets to come
  std::set<std::uint32_t> leaving_;                // sets that are being removed
  std::set<std::uint32_t> joined_;
};

}  // namespace horo
