#include "controller/diagnosis_round.h"

#include <algorithm>

namespace horo {

bool DiagnosisRound::begin(TimePoint now, Duration patience, const RankSet& left) {
  if (now < until_) return false;
  ++question_;
  until_ = now + patience;
  answered_ = left;
  call_sites_.assign(call_sites_.size(), "");
  return true;
}

void DiagnosisRound::take(int from, const Diagnosis& answer) {
  if (answer.question != question_ || !answered_.insert(from)) return;
  call_sites_[static_cast<std::size_t>(from)] = answer.call_sites;
}

std::vector<CallSites> DiagnosisRound::of(const std::vector<int>& ranks) const {
  std::vector<CallSites> groups;
  for (const int rank : ranks) {
    const bool answered = answered_.contains(rank);
    const std::string& text = call_sites_[static_cast<std::size_t>(rank)];
    const auto alike = [&](const CallSites& group) { return group.answered == answered && group.text == text; };
    const auto group = std::find_if(groups.begin(), groups.end(), alike);
    if (group == groups.end()) {
      groups.push_back({{rank}, answered, text});
    } else {
      group->ranks.push_back(rank);
    }
  }
  return groups;
}

}  // namespace horo
