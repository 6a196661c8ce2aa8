#include "controller/set_table.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace horo {

SetTable::SetTable(int size) : size_(size) {
  std::vector<int> world(static_cast<std::size_t>(size));
  std::iota(world.begin(), world.end(), 0);
  add("", std::move(world));
}

void SetTable::add(std::string name, std::vector<int> ranks) {
  RankSet members(size_, ranks);
  sets_.emplace(next_++, KnownSet{std::move(name), std::move(ranks), std::move(members)});
}

const KnownSet* SetTable::find(std::uint32_t set) const {
  const auto found = sets_.find(set);
  return found == sets_.end() ? nullptr : &found->second;
}

std::optional<std::uint32_t> SetTable::find(const std::vector<int>& ranks) const {
  const auto alike = [&](const auto& entry) { return entry.second.ranks == ranks; };
  const auto found = std::find_if(sets_.begin(), sets_.end(), alike);
  return found == sets_.end() ? std::nullopt : std::optional(found->first);
}

std::string set_text(std::uint32_t set, const std::string& name) {
  if (set == 0) return "the world";
  return "process set " + (name.empty() ? std::to_string(set) : "'" + name + "'");
}

std::string of_set_text(std::uint32_t set, const std::string& name) {
  return set == 0 ? "" : " of " + set_text(set, name);
}

}  // namespace horo
