// DiagnosisRound: the leader's question to all ranks, where their callers are, and what came back.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "controller/messages.h"
#include "controller/rank_set.h"
#include "horo/base/time.h"

namespace horo {

// What some ranks answered, all of them alike.
struct CallSites {
  std::vector<int> ranks;
  bool answered = false;
  std::string where;  // empty: there was nobody to ask
};

class DiagnosisRound {
 public:
  explicit DiagnosisRound(int size) : answered_(size), where_(static_cast<std::size_t>(size)) {}

  // Asks anew, unless the answers to the present question are still awaited; true: question() has to be sent. Ranks
  // that have left are not waited for.
  bool begin(TimePoint now, Duration patience, const RankSet& left);
  std::uint64_t question() const { return question_; }
  void take(int from, const Diagnosis& answer);
  void excuse(int rank) { answered_.insert(rank); }

  TimePoint until() const { return until_; }
  bool complete() const { return answered_.full(); }
  // Of these ranks, grouped, in the order of their first ranks.
  std::vector<CallSites> of(const std::vector<int>& ranks) const;

 private:
  std::uint64_t question_ = 0;  // none yet
  TimePoint until_ = TimePoint::min();
  RankSet answered_;
  std::vector<std::string> where_;  // by rank
};

}  // namespace horo
