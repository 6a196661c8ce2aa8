// Joiners: the processes that are started after the members of epoch 0, until they have the state of the members; which
// members can go on with them; and when the members are told to come to a border. It decides no View: JobMembership
// does.
#pragma once

#include <chrono>
#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "elastic/messages.h"
#include "elastic/silences.h"
#include "horo/base/time.h"

namespace horo {

class Joiners {
 public:
  static constexpr std::chrono::seconds kLongestBackOff{60};  // after borders that have failed

  struct Limits {
    MemberId first = 0;                   // the id of the first process that is started later
    std::chrono::milliseconds window{};   // so long a ready one waits for others that are started
    std::chrono::milliseconds timeout{};  // the members have not come to a border for so long: the story says it
  };
  explicit Joiners(const Limits& limits) : limits_(limits) {}

  // ---- What has happened.

  void start(MemberId id) { joiners_[id]; }
  void can_grow(MemberId id, const std::string& terms);
  // Returns whether it was not ready before.
  bool ready(MemberId id, const Ready& message, TimePoint now);
  void enter(MemberId id) {  // it is in a View
    joiners_.at(id).is_inside = true;
    failed_borders_ = 0;
  }
  // Not all members have come to the border in time.
  void fail_border(TimePoint now);
  // It has the state. Returns whether it had not before.
  bool sync(MemberId id);
  void end(MemberId id);  // it is out

  // ---- Which processes are what.

  // In no View so far.
  bool is_outside(MemberId id) const { return id >= limits_.first && !joiners_.at(id).is_inside; }
  std::vector<MemberId> outside() const;  // those that run; ascending
  bool is_ready(MemberId id) const { return joiners_.at(id).ready_at.has_value(); }
  // The members of epoch 0, and those that have joined and have it from them.
  bool has_state(MemberId id) const { return id < limits_.first || joiners_.at(id).has_state; }
  bool can_grow(MemberId id) const { return terms_.contains(id); }
  // How many members the script of this one can have, by the line "most_ranks=N" of its terms; none: any number.
  std::size_t most_with(MemberId member) const;
  // Those that a View could add now: outside, ready with the terms of the members, and not stopped. Ascending.
  std::vector<MemberId> candidates(const Silences& silences) const;
  const Card& card_of(MemberId id) const { return joiners_.at(id).card; }
  // Compares the terms with those of this member. Returns the ready ones that differ from it, and how.
  std::vector<std::pair<MemberId, std::string>> compare_with(MemberId member);

  // ---- Grow.

  void begin_epoch() { told_.reset(); }
  // What the members, which run in an epoch, are told now; nothing: nothing new. `room`: so many can join now.
  std::optional<Grow> next_grow(std::size_t room, const Silences& silences, TimePoint now);
  // The members were told a while ago; true once for each Grow.
  bool is_late(TimePoint now);
  // When next_grow() or is_late() may return something else, if no event comes before.
  std::optional<TimePoint> deadline(TimePoint now) const;

 private:
  struct Joiner {
    std::optional<TimePoint> ready_at;
    Card card;
    bool is_out = false, is_inside = false, has_state = false;
    bool is_compared = false;  // its terms are those of the members
  };
  // So long the ready ones wait for others; nothing: none is ready.
  std::optional<TimePoint> window_end() const;

  const Limits limits_;
  std::map<MemberId, Joiner> joiners_;
  std::map<MemberId, std::string> terms_;  // by process
  std::optional<TimePoint> told_;          // Grow, in this epoch
  bool is_late_ = false;
  int failed_borders_ = 0;  // in a row
  TimePoint retry_at_{};    // the members are not told before, as each failed border costs them an epoch
};

// The first of the lines "name=value" in which the terms of a process that joins differ from those of the ranks:
// "HORO_BUCKET_BYTES is 1000 here and 67108864 on the ranks that it joins"; nothing: none does.
std::optional<std::string> difference_of(const std::string& here, const std::string& ranks);

}  // namespace horo
