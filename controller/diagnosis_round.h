// DiagnosisRound: one round of stall diagnosis: the leader's request to all ranks for the call sites of their callers,
// and the answers.
#pragma once

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

class DiagnosisRound {
 public:
  explicit DiagnosisRound(int size) : answered_(size), call_sites_(static_cast<std::size_t>(size)) {}

  // Begins a round, unless the answers of the last one are still expected; true: question() must be sent to all ranks.
  // Answers are expected until now + patience; ranks that have left are not expected to answer.
  bool begin(TimePoint now, Duration patience, const RankSet& left);
  // The number of this round; 0: there was none.
  std::uint64_t question() const { return question_; }
  // Ignores an answer to an earlier round.
  void take(int from, const Diagnosis& answer);
  // The rank is not expected to answer any longer.
  void excuse(int rank) { answered_.insert(rank); }

  TimePoint until() const { return until_; }
  // True if every rank has answered or is excused.
  bool complete() const { return answered_.full(); }
  // The answers of these ranks, equal ones grouped, in the order of the groups' first ranks.
  std::vector<CallSites> of(const std::vector<int>& ranks) const;

 private:
  std::uint64_t question_ = 0;
  TimePoint until_ = TimePoint::min();
  RankSet answered_;
  std::vector<std::string> call_sites_;  // by rank
};

}  // namespace horo
