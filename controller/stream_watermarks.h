// StreamWatermarks: how many messages the leader has sent, how many of them each rank had applied at its last report,
// and which reports are therefore outdated: a rank that reports a failed tensor, or a removed process set, before it
// has applied the failure or removal reports the failed instance or the old set.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "controller/messages.h"
#include "controller/rank_set.h"

namespace horo {

class StreamWatermarks {
 public:
  explicit StreamWatermarks(int size) : reported_(size), applied_(static_cast<std::size_t>(size)) {}

  // The count of a rank's report. Throws ProtocolError if it is less than before, or more than was sent.
  void take(int from, std::uint64_t applied);
  // Rank 0 applies every message as soon as it is sent.
  void leader_applied_all() { applied_[0] = sent_; }
  void message_sent() { ++sent_; }
  std::uint64_t next_message() const { return sent_ + 1; }
  // No report of this rank follows.
  void rank_left(int rank) { reported_.insert(rank); }
  // True if every rank has reported or left.
  bool have_all_reported() const { return static_cast<std::size_t>(reported_.count()) == applied_.size(); }
  // True if the rank had applied the message when it sent its last report.
  bool has_applied(int from, std::uint64_t message) const {
    return applied_[static_cast<std::size_t>(from)] >= message;
  }
  // The number of messages that every rank outside of `left` has applied.
  std::uint64_t applied_by_all(const RankSet& left) const;

  // Records that the next message announces the failure of a tensor that not all of its ranks have reported.
  void tensor_failed(const TensorName& name) { failed_[name] = sent_ + 1; }
  // Records that the next message removes the set. Forgets the failures in it.
  void set_removed(std::uint32_t set);

  // True if the rank's last report was sent before it applied the failure.
  bool crosses_failure(int from, const TensorName& name) const;
  bool has_failures() const { return !failed_.empty(); }
  // True if the rank's last report was sent before it applied the last removal of a set.
  bool crosses_removal(int from) const { return applied_[static_cast<std::size_t>(from)] < last_removal_; }
  // Forgets the failures that every rank outside of `left` has applied: no report can cross them.
  void forget_failures(const RankSet& left);

 private:
  RankSet reported_;
  std::vector<std::uint64_t> applied_;  // by rank: messages that it had applied at its last report
  std::uint64_t sent_ = 0;
  std::uint64_t last_removal_ = 0;              // number of the message that removed a set last
  std::map<TensorName, std::uint64_t> failed_;  // number of the message that announces the failure
};

}  // namespace horo
