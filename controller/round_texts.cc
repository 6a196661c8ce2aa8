#include "controller/round_texts.h"

#include <algorithm>
#include <utility>

#include "controller/texts.h"

namespace horo {
namespace {

using RoundGroup = std::pair<RoundNumber, std::vector<int>>;

std::string round_name(const RoundNumber& with_digest) {
  const RoundNumber round = without_digest(with_digest);
  return "round " + std::to_string(round.round) + " of step " + std::to_string(round.step);
}

// What ranks in round `a` did, unlike ranks in round `b`.
std::string excess(const RoundNumber& first, const RoundNumber& second) {
  const RoundNumber a = without_digest(first);
  const RoundNumber b = without_digest(second);
  if (a.step == b.step) return a.round > b.round ? "called backward() more often" : "called backward() less often";
  return a.step < b.step ? "called backward() more often, or step() less often,"
                         : "called backward() less often, or step() more often,";
}

// The smaller group is more likely to have the error.
std::string advice(const std::vector<RoundGroup>& groups) {
  if (groups.size() > 2) return "the ranks called backward() and step() in different orders, or not equally often";
  const bool first_is_smaller = groups[0].second.size() <= groups[1].second.size();
  const RoundGroup& odd = groups[first_is_smaller ? 0 : 1];
  const RoundGroup& rest = groups[first_is_smaller ? 1 : 0];
  return ranks_text(odd.second) + " " + excess(odd.first, rest.first) + " than " + ranks_text(rest.second);
}

bool differ_in_digest_alone(const std::vector<RoundGroup>& groups) {
  return std::all_of(groups.begin(), groups.end(), [&](const RoundGroup& group) {
    return without_digest(group.first) == without_digest(groups.front().first);
  });
}

// Of ranks in the same round whose digests differ.
std::string digests_text(std::vector<RoundGroup> groups, const std::string& head) {
  std::sort(groups.begin(), groups.end(),
            [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
  const auto& [round, odd] = groups.front();
  return head + ranks_text(odd) + (odd.size() == 1 ? " submits" : " submit") + " other tensors in " +
         round_name(round) + " than " + ranks_text(groups.back().second) +
         ". Nothing was changed; submit the same tensors on all ranks";
}

}  // namespace

std::string rounds_text(const std::string& name, const std::map<RoundNumber, std::vector<int>>& groups,
                        const std::string& of_set) {
  constexpr std::size_t kMostGroups = 16;
  std::vector<RoundGroup> sorted(groups.begin(), groups.end());
  std::sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  std::string text = "tensor '" + name + "'" + of_set + ": ";
  if (differ_in_digest_alone(sorted)) return digests_text(std::move(sorted), text);
  for (std::size_t i = 0; i < std::min(sorted.size(), kMostGroups); ++i) {
    const auto& [round, ranks] = sorted[i];
    const char* verb = ranks.size() == 1 ? " submits it in " : " submit it in ";
    text += (i == 0 ? "" : ", ") + ranks_text(ranks) + (i == 0 ? verb : " in ") + round_name(round);
  }
  if (sorted.size() > kMostGroups) text += " and others in more rounds";
  return text + ": " + advice(sorted) + ". Nothing was changed; call both equally often on all ranks";
}

std::string given_up_head(const std::string& name, const std::string& of_set) {
  return "tensor '" + name + "'" + of_set + ": ";
}

std::string given_up_text(const GivenUpRound& failed) {
  return "rank " + std::to_string(failed.rank) + " has given up " + round_name(failed.round) + ": " + failed.reason;
}

}  // namespace horo
