#include "horo/tensors/known_sets.h"

#include <algorithm>
#include <stdexcept>

#include "horo/base/check.h"

namespace horo {
namespace {

[[noreturn]] void refuse(const std::string& why) {
  throw std::invalid_argument(why);
}

template <class Number>
std::string list_of(const std::vector<Number>& ranks) {
  std::string text;
  for (const Number rank : ranks) text += (text.empty() ? "" : ", ") + std::to_string(rank);
  return text;
}

std::string subject_of_new(const std::string& name) {
  return "add_set" + (name.empty() ? "" : " '" + name.substr(0, 200) + "'") + ": ";
}

bool same(const std::vector<int>& a, const std::vector<std::int64_t>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](int x, std::int64_t y) { return x == y; });
}

}  // namespace

std::string describe(const SetInfo& set) {
  if (set.number == 0) return "the world";
  const std::string by_number = "process set " + std::to_string(set.number);
  return set.name == by_number ? by_number : "process set '" + set.name + "'";
}

KnownSets::KnownSets(const Config& config)
    : rank_(config.rank),
      world_size_(config.size),
      most_(config.max_process_sets),
      is_elastic_(config.min_np > 0),
      first_sets_(static_cast<std::size_t>(config.size)) {
  sets_.emplace(0, whole_world());
}

SetInfo KnownSets::whole_world() const {
  SetInfo world{0, "world", {}, rank_};
  for (int rank = 0; rank < world_size_; ++rank) world.ranks.push_back(rank);
  return world;
}

const SetInfo& KnownSets::find(std::uint32_t set) const {
  const auto found = sets_.find(set);
  if (found != sets_.end()) return found->second;
  if (const auto lost = lost_.find(set); lost != lost_.end()) lost->second->raise();
  refuse("process set " + std::to_string(set) +
         (set <= last_ ? " was removed" : " does not exist; 0 is the world, other sets are made by add_set"));
}

const SetInfo& KnownSets::find_mine(std::uint32_t number) const {
  const SetInfo& set = find(number);
  if (set.rank >= 0) return set;
  refuse("rank " + std::to_string(rank_) + " is not in " + describe(set) + ", which has the ranks " +
         list_of(set.ranks));
}

void KnownSets::place(SetInfo& set) const {
  const auto mine = std::find(set.ranks.begin(), set.ranks.end(), rank_);
  set.rank = mine == set.ranks.end() ? -1 : static_cast<int>(mine - set.ranks.begin());
}

void KnownSets::add(SetInfo set) {
  HORO_CHECK(set.number > last_);
  last_ = set.number;
  place(set);
  sets_.emplace(set.number, std::move(set));
}

void KnownSets::remove(std::uint32_t set) {
  sets_.erase(set);
  joined_.erase(set);
}

void KnownSets::begin_epoch(RankChange& change) {
  rank_ = change.rank;
  world_size_ = change.size;
  for (auto entry = sets_.begin(); entry != sets_.end();) {
    SetInfo& set = entry->second;
    std::vector<int> ranks, place_of;
    int lost = -1;
    for (const int rank : set.ranks) {
      const int now = change.rank_of[static_cast<std::size_t>(rank)];
      place_of.push_back(now < 0 ? -1 : static_cast<int>(ranks.size()));
      if (now >= 0) ranks.push_back(now);
      if (now < 0 && lost < 0) lost = rank;
    }
    const bool goes_on = lost < 0 || set.number == 0 || (set.shrinks && !ranks.empty());
    if (!goes_on) {
      const std::string what = set.shrinks ? " has lost all of its members: " : " has lost a member: ";
      lost_[set.number] = peer_lost(
          lost, describe(set) + what + change.reason +
                    (set.shrinks ? "" : ". Make the set anew among the ranks that are left, or with shrinks=True"));
      joined_.erase(set.number);
      entry = sets_.erase(entry);
      continue;
    }
    if (lost >= 0 && set.number != 0) change.in_sets[set.number] = std::move(place_of);
    set.ranks = std::move(ranks);
    place(set);
    ++entry;
  }
  sets_[0] = whole_world();
  first_sets_ = in_next_epoch(first_sets_, world_size_, change.rank_of, last_ + 1);
}

void KnownSets::join(int rank, const JoinState& state, std::span<const std::uint32_t> members) {
  rank_ = rank;
  world_size_ = static_cast<int>(members.size());
  sets_ = {{0, whole_world()}};
  last_ = state.last_set;
  first_sets_ = first_sets_of(state, members);
  for (const auto& [number, set] : state.sets) {
    std::vector<int> ranks = ranks_of(set, members);
    if (ranks.empty()) continue;
    SetInfo info{number, set.name, std::move(ranks), -1, set.shrinks, set.by_members};
    place(info);
    sets_.emplace(number, std::move(info));
  }
}

JoinState KnownSets::for_joiners(std::span<const std::uint32_t> members) const {
  JoinState state;
  state.last_set = last_;
  const std::size_t size = std::min(members.size(), first_sets_.size());
  for (std::size_t rank = 0; rank < size; ++rank) state.first_sets[members[rank]] = first_sets_[rank];
  for (const auto& [number, set] : sets_) {
    if (number == 0) continue;
    JoinState::Set& one = state.sets[number];
    one = {set.name, {}, set.shrinks, set.by_members};
    for (const int rank : set.ranks) {
      if (static_cast<std::size_t>(rank) < members.size())
        one.members.push_back(members[static_cast<std::size_t>(rank)]);
    }
  }
  return state;
}

void KnownSets::check_new(const std::string& name, const std::vector<std::int64_t>& ranks) const {
  const std::string what = subject_of_new(name);
  check_ranks(what, ranks);
  std::size_t sets = requested_.size();
  for (const auto& [number, set] : sets_) {
    if (set.by_members || !knows(number)) continue;
    if (!is_elastic_ && same(set.ranks, ranks)) refuse(what + describe(set) + " has the same ranks: " + list_of(ranks));
    if (number != 0 && !name.empty() && set.name == name) refuse(what + describe(set) + " has that name already");
    if (number != 0) ++sets;
  }
  if (requested_.contains(ranks)) refuse(what + "a process set of the same ranks is being added: " + list_of(ranks));
  if (sets >= most_) {
    refuse(what + std::to_string(most_) +
           " process sets exist or are being added, no more are allowed (HORO_MAX_PROCESS_SETS)");
  }
}

void KnownSets::check_of_members(const std::string& name, const std::vector<std::int64_t>& ranks) const {
  const std::string what = subject_of_new(name);
  if (name.empty()) refuse(what + "a process set that its members alone add has a name, by which they find each other");
  check_ranks(what, ranks);
  if (!std::ranges::binary_search(ranks, rank_)) {
    refuse(what + "rank " + std::to_string(rank_) + " is not among the ranks " + list_of(ranks) +
           "; the members of the set alone add it");
  }
  for (const auto& [number, set] : sets_) {
    const bool is_mine = set.by_members && set.rank >= 0;
    if (is_mine && set.name == name) refuse(what + "process set " + std::to_string(number) + " has that name already");
  }
}

void KnownSets::check_ranks(const std::string& what, const std::vector<std::int64_t>& ranks) const {
  if (ranks.empty()) refuse(what + "a process set has one rank at least, this one has none");
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (ranks[i] < 0 || ranks[i] >= world_size_) {
      refuse(what + "rank " + std::to_string(ranks[i]) + " is not in this world of " + std::to_string(world_size_));
    }
    if (i > 0 && ranks[i] == ranks[i - 1]) refuse(what + "rank " + std::to_string(ranks[i]) + " comes twice");
    if (i > 0 && ranks[i] < ranks[i - 1]) refuse(what + "expected the ranks in ascending order: " + list_of(ranks));
  }
}

void KnownSets::complete_request(TensorSpec& spec) const {
  if (spec.kind == CollectiveKind::kRemoveSet) {
    const SetInfo& set = find(static_cast<std::uint32_t>(spec.shape.front()));
    spec.by_members = set.by_members;
    if (set.by_members) spec.set_name = set.name;
    // Ranks that have joined have made fewer of these calls, which their numbers would tell.
    if (is_elastic_) spec.name = std::string(name_of(spec.kind)) + "(" + std::to_string(set.number) + ")";
  }
  if (!spec.by_members) return;
  spec.channel = kMembersChannel;
  spec.name = std::string(name_of(spec.kind)) + " '" + spec.set_name + "'";
}

void KnownSets::check_request(const TensorSpec& spec) const {
  if (spec.kind == CollectiveKind::kAddSet) {
    return spec.by_members ? check_of_members(spec.set_name, spec.shape) : check_new(spec.set_name, spec.shape);
  }
  if (spec.kind == CollectiveKind::kRemoveSet) {
    const auto number = static_cast<std::uint32_t>(spec.shape.front());
    const SetInfo& set = spec.by_members ? find_mine(number) : find(number);
    if (number == 0) refuse("remove_set: 0 is the world, which stays");
    if (!set.by_members && !knows(number)) {
      refuse("remove_set: rank " + std::to_string(rank_) + " has joined after " + describe(set) +
             " was made; the ranks that were there at that time remove it");
    }
    if (leaving_.contains(number)) refuse("remove_set: " + describe(set) + " is being removed already");
  }
  if (spec.kind == CollectiveKind::kJoin && has_joined(find_mine(spec.set).number)) {
    refuse("join: rank " + std::to_string(rank_) + " has joined " + describe(find(spec.set)) +
           " already; wait until all others have");
  }
}

void KnownSets::add_request(const TensorSpec& spec) {
  if (spec.kind == CollectiveKind::kAddSet && !spec.by_members) requested_.insert(spec.shape);
  if (spec.kind == CollectiveKind::kRemoveSet) leaving_.insert(static_cast<std::uint32_t>(spec.shape.front()));
  if (spec.kind == CollectiveKind::kJoin) joined_.insert(spec.set);
}

void KnownSets::end_request(const TensorSpec& spec) {
  if (spec.kind == CollectiveKind::kAddSet && !spec.by_members) requested_.erase(spec.shape);
  if (spec.kind == CollectiveKind::kRemoveSet) leaving_.erase(static_cast<std::uint32_t>(spec.shape.front()));
  if (spec.kind == CollectiveKind::kJoin) joined_.erase(spec.set);
}

}  // namespace horo
