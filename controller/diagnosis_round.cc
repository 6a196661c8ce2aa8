#include "controller/diagnosis_round.h"

#include <algorithm>
#include <utility>

namespace horo {

bool DiagnosisRound::begin(TimePoint now, Duration patience, const RankSet& left, Duration fresh) {
  if (question_ != 0 && (!over(now) || now - began_ < fresh)) return false;
  ++question_;
  began_ = now;
  until_ = now + patience;
  answered_ = left;
  answers_.assign(answers_.size(), {});
  return true;
}

void DiagnosisRound::take(int from, Diagnosis answer, TimePoint now) {
  if (answer.question != question_ || !answered_.insert(from)) return;
  answers_[static_cast<std::size_t>(from)] = {now, std::move(answer)};
}

std::vector<CallSites> DiagnosisRound::of(const std::vector<int>& ranks) const {
  std::vector<CallSites> groups;
  for (const int rank : ranks) {
    const bool answered = answered_.contains(rank);
    const std::string& text = answers_[static_cast<std::size_t>(rank)].answer.call_sites;
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
