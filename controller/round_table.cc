#include "controller/round_table.h"

#include <algorithm>

namespace horo {

RoundNumber without_digest(const RoundNumber& round) {
  constexpr int kDigestBits = 32;
  const std::uint64_t high = round.round >> kDigestBits;
  return {round.step, high == 0 ? round.round : high - 1};
}

void InstanceRounds::add(int rank, const std::optional<RoundNumber>& round) {
  if (!first_) first_ = round;
  if (!round || *round != *first_) others_.insert_or_assign(rank, round);
}

std::optional<RoundNumber> InstanceRounds::of(int rank) const {
  const auto found = others_.find(rank);
  return found == others_.end() ? first_ : found->second;
}

bool InstanceRounds::differ() const {
  return std::any_of(others_.begin(), others_.end(), [](const auto& other) { return other.second.has_value(); });
}

std::map<RoundNumber, std::vector<int>> InstanceRounds::groups(const RankSet& ranks) const {
  std::map<RoundNumber, std::vector<int>> groups;
  for (const int rank : ranks.ranks()) {
    if (const std::optional<RoundNumber> round = of(rank)) groups[*round].push_back(rank);
  }
  return groups;
}

void InstanceRounds::keep(const std::vector<int>& ranks) {
  InstanceRounds kept;
  for (const int rank : ranks) kept.add(rank, of(rank));
  *this = std::move(kept);
}

void InstanceRounds::clear() {
  first_.reset();
  others_.clear();
}

// The least of the current rounds of these ranks.
RoundNumber RoundTable::StreamRounds::least(const RankSet& members) const {
  RoundNumber least{UINT64_MAX, UINT64_MAX};
  for (const int rank : members.ranks()) {
    least = std::min(least, current[static_cast<std::size_t>(rank)].value_or(RoundNumber()));
  }
  return least;
}

void RoundTable::begin(int rank, const RoundBegun& begun, const RankSet& members) {
  StreamRounds& rounds = streams_[begun.stream];
  if (rounds.current.empty()) rounds.current.resize(static_cast<std::size_t>(size_));
  rounds.current[static_cast<std::size_t>(rank)] = begun.round;
  rounds.used = ++uses_;
  if (!rounds.failed.empty()) {
    const RoundNumber least = rounds.least(members);
    std::erase_if(rounds.failed,
                  [&](const GivenUpRound& f) { return f.round < least || (f.rank == rank && f.round == begun.round); });
  }
  if (streams_.size() <= max_streams_) return;
  streams_.erase(std::min_element(streams_.begin(), streams_.end(),
                                  [](const auto& a, const auto& b) { return a.second.used < b.second.used; }));
}

const GivenUpRound* RoundTable::fail(int rank, const RoundFailed& failed) {
  const std::optional<RoundNumber> round = current(rank, failed.stream);
  if (!round) return nullptr;
  std::deque<GivenUpRound>& all = streams_.at(failed.stream).failed;
  std::erase_if(all, [&](const GivenUpRound& f) { return f.rank == rank && f.round == *round; });
  if (all.size() >= kMostGivenUp) all.pop_front();
  all.push_back({rank, *round, failed.reason});
  return &all.back();
}

void RoundTable::forget_set(std::uint32_t set) {
  std::erase_if(streams_, [set](const auto& stream) { return stream.first.set == set; });
}

std::optional<RoundNumber> RoundTable::current(int rank, const RoundStream& stream) const {
  if (stream.number == 0) return std::nullopt;
  const auto found = streams_.find(stream);
  return found == streams_.end() ? std::nullopt : found->second.current[static_cast<std::size_t>(rank)];
}

std::vector<const GivenUpRound*> RoundTable::failures(const RoundStream& stream, const RoundNumber& round) const {
  std::vector<const GivenUpRound*> failures;
  const auto found = streams_.find(stream);
  if (found == streams_.end()) return failures;
  for (const GivenUpRound& failed : found->second.failed) {
    if (without_digest(failed.round) == without_digest(round)) failures.push_back(&failed);
  }
  return failures;
}

bool RoundTable::fits(int rank, std::uint32_t set, const PlanRounds& plan) const {
  return std::all_of(plan.begin(), plan.end(), [&](const auto& one) {
    const auto& [stream, rounds] = one;
    const std::optional<RoundNumber> now = current(rank, {set, stream});
    if (!now) return true;
    return (!rounds.first() || *rounds.first() == *now) && failures({set, stream}, *now).empty();
  });
}

void RoundTable::add(int rank, std::uint32_t set, PlanRounds& plan) const {
  for (auto& [stream, rounds] : plan) rounds.add(rank, current(rank, {set, stream}));
}

}  // namespace horo
