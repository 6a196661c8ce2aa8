#include "controller/set_table.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace horo {

FirstSets in_next_epoch(const FirstSets& first, int size, const std::vector<int>& rank_of, std::uint32_t next) {
  FirstSets later(static_cast<std::size_t>(size), next);
  for (std::size_t rank = 0; rank < first.size(); ++rank) {
    if (rank_of[rank] >= 0) later[static_cast<std::size_t>(rank_of[rank])] = first[rank];
  }
  return later;
}

SetTable::SetTable(int size) : size_(size), first_(static_cast<std::size_t>(size)) {
  std::vector<int> world(static_cast<std::size_t>(size));
  std::iota(world.begin(), world.end(), 0);
  add("", std::move(world));
}

SetTable::SetTable(FirstSets first, std::uint32_t next, const std::map<std::uint32_t, KnownSet>& sets)
    : SetTable(static_cast<int>(first.size())) {
  first_ = std::move(first);
  sets_.insert(sets.begin(), sets.end());
  next_ = next;
}

SetTable SetTable::in_next_epoch(int size, const std::vector<int>& rank_of) const {
  SetTable next(size);
  for (const auto& [number, set] : sets_) {
    std::vector<int> ranks;
    for (const int rank : set.ranks) {
      if (const int now = rank_of[static_cast<std::size_t>(rank)]; now >= 0) ranks.push_back(now);
    }
    const bool goes_on = set.shrinks ? !ranks.empty() : ranks.size() == set.ranks.size();
    if (number == 0 || !goes_on) continue;
    RankSet members(size, ranks);
    next.sets_.emplace(number, KnownSet{set.name, std::move(ranks), std::move(members), set.shrinks, set.by_members});
  }
  next.next_ = next_;
  next.first_ = horo::in_next_epoch(first_, size, rank_of, next_);
  return next;
}

void SetTable::add(std::string name, std::vector<int> ranks, bool shrinks, bool by_members) {
  RankSet members(size_, ranks);
  sets_.emplace(next_++, KnownSet{std::move(name), std::move(ranks), std::move(members), shrinks, by_members});
}

const KnownSet* SetTable::find(std::uint32_t set) const {
  const auto found = sets_.find(set);
  return found == sets_.end() ? nullptr : &found->second;
}

std::optional<std::uint32_t> SetTable::find(const std::vector<int>& ranks) const {
  const auto alike = [&](const auto& entry) { return !entry.second.by_members && entry.second.ranks == ranks; };
  const auto found = std::find_if(sets_.begin(), sets_.end(), alike);
  return found == sets_.end() ? std::nullopt : std::optional(found->first);
}

std::optional<std::uint32_t> SetTable::find_of_members(const std::string& name) const {
  const auto is_it = [&](const auto& entry) { return entry.second.by_members && entry.second.name == name; };
  const auto found = std::find_if(sets_.begin(), sets_.end(), is_it);
  return found == sets_.end() ? std::nullopt : std::optional(found->first);
}

RankSet SetTable::ranks_that_know(std::uint32_t set) const {
  RankSet ranks(size_);
  for (int rank = 0; rank < size_; ++rank) {
    if (knows(rank, set)) ranks.insert(rank);
  }
  return ranks;
}

std::string set_text(std::uint32_t set, const std::string& name) {
  if (set == 0) return "the world";
  return "process set " + (name.empty() ? std::to_string(set) : "'" + name + "'");
}

std::string of_set_text(std::uint32_t set, const std::string& name) {
  return set == 0 ? "" : " of " + set_text(set, name);
}

}  // namespace horo
