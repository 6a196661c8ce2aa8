// DiagnosisRound: one round of stall diagnosis: the leader's request to all ranks for the call sites and the waits of
// their callers, and the answers.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "controller/messages.h"
#include "controller/rank_set.h"
#include "horo/base/time.h"

namespace horo {

// The answer that some ranks have in common.
struct CallSites {
  std::vector<int> ranks;
  bool answered = false;
  std::string text;  // empty: not a Python program, or not answered
};
// A rank's answer.
struct RankAnswer {
  TimePoint at = TimePoint::min();  // min(): not answered
  Diagnosis answer;
};

class DiagnosisRound {
 public:
  explicit DiagnosisRound(int size) : answered_(size), answers_(static_cast<std::size_t>(size)) {}

  // Begins a round; true: question() must be sent to all ranks. Answers are expected until now + patience; ranks that
  // have left are not expected to answer. Continues the last round if answers are still expected, or if it began less
  // than `fresh` ago.
  bool begin(TimePoint now, Duration patience, const RankSet& left, Duration fresh);
  // Expects no further answers.
  void abandon(TimePoint now) { until_ = std::min(until_, now); }
  // The number of this round; 0: there was none.
  std::uint64_t question() const { return question_; }
  // Ignores an answer to an earlier round.
  void take(int from, Diagnosis answer, TimePoint now);
  // The rank is not expected to answer any longer.
  void excuse(int rank) { answered_.insert(rank); }

  TimePoint began() const { return began_; }
  TimePoint until() const { return until_; }
  // True if every rank has answered or is excused.
  bool complete() const { return answered_.full(); }
  // True if no further answer is expected.
  bool over(TimePoint now) const { return complete() || now >= until_; }
  // By rank.
  const std::vector<RankAnswer>& answers() const { return answers_; }
  // The call sites of these ranks, equal ones grouped, in the order of the groups' first ranks.
  std::vector<CallSites> of(const std::vector<int>& ranks) const;

 private:
  std::uint64_t question_ = 0;
  TimePoint began_ = TimePoint::min();
  TimePoint until_ = TimePoint::min();
  RankSet answered_;
  std::vector<RankAnswer> answers_;
};

}  // namespace horo
