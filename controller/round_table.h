// The rounds of round streams (coordinator.h), as the leader knows them: the current round of each rank, the rounds
// that ranks have given up, and the rounds in which ranks reported an instance of a tensor. A rank may begin a round
// while tensors of its last round are in flight, so the round of a report is stored with the report.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "controller/coordinator.h"
#include "controller/rank_set.h"

namespace horo {

// A round may carry a digest of the tensors that its rank submits in it: (number in the step + 1) * 2^32 + digest. Then
// rounds with equal numbers and different digests differ, and the result is the round with the number alone.
RoundNumber without_digest(const RoundNumber& round);

// The rounds in which ranks reported one instance. Uses no memory per rank while they are equal. A round is nullopt if
// it is not known (RoundTable); such a report agrees with all others.
class InstanceRounds {
 public:
  void add(int rank, const std::optional<RoundNumber>& round);
  // Of a rank that was added.
  std::optional<RoundNumber> of(int rank) const;
  // The round of the first rank whose round is known; nullopt if there is none.
  const std::optional<RoundNumber>& first() const { return first_; }
  bool differ() const;
  // The known rounds, each with those of these ranks that reported in it.
  std::map<RoundNumber, std::vector<int>> groups(const RankSet& ranks) const;
  // Forgets all other ranks.
  void keep(const std::vector<int>& ranks);
  void clear();

 private:
  std::optional<RoundNumber> first_;
  std::map<int, std::optional<RoundNumber>> others_;  // by rank, where it is not first_
};
using PlanRounds = std::map<std::uint64_t, InstanceRounds>;  // of a plan, by number of the stream

// A round that a rank has given up.
struct GivenUpRound {
  int rank = 0;
  RoundNumber round;
  std::string reason;
};

// Part of the leader. If there are more than max_streams streams, the table drops the one in which no rank has begun a
// round for the longest time; its current rounds are not known then, so reports are not compared.
class RoundTable {
 public:
  RoundTable(int size, std::size_t max_streams) : size_(size), max_streams_(max_streams) {}

  // The most given-up rounds of a stream; the oldest are dropped first.
  static constexpr std::size_t kMostGivenUp = 1'024;

  // members: of the stream's process set.
  void begin(int rank, const RoundBegun& begun, const RankSet& members);
  // The rank gives up its current round. Null if that is not known. The pointer is valid until the next change.
  const GivenUpRound* fail(int rank, const RoundFailed& failed);
  void forget_set(std::uint32_t set);

  // The rank's current round; nullopt if it is not known, or the stream's number is 0.
  std::optional<RoundNumber> current(int rank, const RoundStream& stream) const;
  // The failures of this round, whatever its digest, the first one first. A failure is kept until every member has
  // begun a later round, because a rank may give up several rounds while another is still in the first of them.
  std::vector<const GivenUpRound*> failures(const RoundStream& stream, const RoundNumber& round) const;

  // True if the current rounds of the rank equal those of the ranks that reported the plan, and no rank has given up
  // one of them: then the plan may store the rank's report.
  bool fits(int rank, std::uint32_t set, const PlanRounds& plan) const;
  void add(int rank, std::uint32_t set, PlanRounds& plan) const;

 private:
  struct StreamRounds {
    std::vector<std::optional<RoundNumber>> current;  // by rank
    std::deque<GivenUpRound> failed;                  // in the order in which they failed
    std::uint64_t used = 0;                           // value of uses_ at its last begin

    RoundNumber least(const RankSet& members) const;
  };

  const int size_;
  const std::size_t max_streams_;
  std::uint64_t uses_ = 0;
  std::map<RoundStream, StreamRounds> streams_;
};

}  // namespace horo
