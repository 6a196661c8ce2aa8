// The invariants of docs/protocol.md, checked during a run of the simulator and at its end.
#pragma once

#include <algorithm>
#include <compare>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "tests/elastic/scenario.h"

namespace horo::sim {

// One collective that a member delivers to its caller.
struct Delivery {
  std::uint32_t lane = 0, stream = 0, round = 0, part = 0;
  std::uint32_t epoch = 0;
  std::uint64_t number = 0;        // of the lane, in the epoch
  std::uint64_t contributors = 0;  // by rank: four bits each, member + 1; the lowest bits are rank 0
};

class RunChecker {
 public:
  RunChecker(std::uint64_t seed, const Scenario& scenario);

  // All that one commit delivers at the member.
  void deliver(MemberId member, std::span<const Delivery> commit);
  // The member's lane has failed, since its set has lost a member: it delivers no more there.
  void fail_lane(MemberId member, std::uint32_t lane);
  void send(MemberId member, const Frozen& frozen);
  // The member takes part no more: its process ends, or it has sent Leave. In order: with success.
  void go_out(MemberId member, bool in_order) {
    if (in_order && !has(out_, member)) left_ |= only(member);
    out_ |= only(member);
  }
  // The process of a member that has left in order has ended with a failure: it does not count any more.
  void take_back(MemberId member) { left_ &= ~only(member); }
  // The guard may evict the member: it is stopped or does not answer for long.
  void allow_eviction(MemberId member) { evictable_ |= only(member); }
  void count_link_failure(MemberId one, MemberId other, std::uint32_t epoch);
  void send(MemberId member, View view);
  void send(MemberId member, const Settle& settle);
  // For its silence, or for a link. In this epoch another member waits, and what decides has run for the whole limit.
  void evict(MemberId member, std::uint32_t epoch, TimePoint now);
  // What decides does not run until then.
  void pause(TimePoint until) { runs_ = std::max(runs_, until); }
  // Messages may be lost and sent again, and arrive after others of later decisions.
  // The host of each member. Links between two hosts fail as one.
  void set_hosts(std::vector<std::uint32_t> hosts) { hosts_ = std::move(hosts); }
  void allow_repeats() { has_repeats_ = true; }
  // ---- Joins.
  // What decides has heard this, in this epoch, and then has done all that it does.
  void hear(const MembershipEvent& event, std::uint32_t epoch, TimePoint now);
  void end_turn(bool is_parked);
  void send(MemberId member, const Freeze& freeze, TimePoint now);
  void send(const Grow& grow, std::uint32_t epoch);
  // The member has the state; its next rounds of the streams of the first lane are these.
  void sync(MemberId member, const std::vector<std::uint32_t>& rounds);
  // Processes that count as waiting members for what decides now, as far as it has heard.
  MemberSet waiting() const { return waiting_; }
  // What decides has heard of a member at the border of the epoch.
  bool has_border(std::uint32_t epoch) const;

  // The member has delivered its whole program.
  void finish(MemberId member) { finished_ |= only(member); }
  void end();

  void violate(const std::string& text);
  // Whether these members and those that have left in order are as many as the job needs.
  bool is_enough(MemberSet members) const;
  bool is_violated() const { return !violation_.empty(); }
  const std::string& violation() const { return violation_; }  // the first one; empty: none

 private:
  struct Agreed {  // what the first member to deliver a collective saw
    std::uint32_t epoch = 0;
    std::uint64_t number = 0;
    std::uint64_t contributors = 0;
    MemberSet delivered_by = 0;
  };
  // What decides has heard.
  struct Heard {
    MemberSet out = 0, ready = 0, can_grow = 0, stopped = 0, with_state = 0, refused = 0;
    MemberSet missed = 0;  // joiners without the state
    std::uint32_t epoch = 0;
    MemberSet installed = 0, frozen = 0, at_border = 0, failed = 0;  // in the epoch
    bool has_failed_exit = false;                                    // of a member that has left
    std::optional<TimePoint> border;                                 // the first member is there
  };
  using Key = std::tuple<std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t>;

  void hear(MemberId id, const MemberMessage& message, TimePoint now);
  void hear_frozen(MemberId id, const Frozen& frozen, TimePoint now);
  void begin_hearing(std::uint32_t epoch);
  MemberSet count_waiting() const;
  void check_joins(const View& view, std::uint32_t last_epoch);
  void check_place(const std::vector<MemberId>& members);
  MemberSet here() const { return members_ & ~heard_.out & ~evicted_; }
  bool is_of_link(MemberId member) const;
  bool takes_part(MemberId member, std::uint32_t lane, const RoundPlan& round) const;
  void check_round(MemberId member, std::span<const Delivery> commit);
  void check_order(MemberId member, const Delivery& delivery);
  void check_agreement(MemberId member, const Delivery& delivery);

  const std::uint64_t seed_;
  const Scenario& scenario_;
  std::map<Key, Agreed> agreed_;
  std::vector<std::vector<std::vector<std::uint32_t>>> next_;                        // round: by member, lane, stream
  std::vector<std::vector<std::pair<std::uint32_t, std::uint64_t>>> last_;           // epoch, number: by member, lane
  std::map<std::uint32_t, std::pair<MemberId, std::vector<std::uint32_t>>> failed_;  // lane: first member, its rounds
  std::map<std::pair<MemberId, std::uint32_t>, Progress> frozen_;                    // by member, epoch
  std::map<std::pair<MemberId, MemberId>, std::set<std::uint32_t>> link_failures_;   // the epochs
  std::vector<std::uint32_t> hosts_;                               // of the members, by id; empty: all have one
  std::map<std::uint32_t, std::pair<Settle, MemberSet>> settled_;  // by epoch: to these members
  std::optional<View> view_;
  MemberSet seen_view_ = 0;
  MemberSet members_;  // of the epoch
  Heard heard_;
  MemberSet waiting_ = 0;
  MemberSet had_epochs_ = 0;                                // members of any
  MemberSet state_ = 0;                                     // members that have it
  std::map<MemberId, std::vector<std::uint32_t>> starts_;   // of joiners: rounds of the first lane
  std::set<std::pair<MemberId, std::uint32_t>> at_border_;  // Frozen that say so
  std::set<std::uint32_t> borders_;                         // epochs
  MemberSet out_ = 0, left_ = 0, evictable_ = 0, evicted_ = 0, finished_ = 0;
  bool has_repeats_ = false;
  TimePoint runs_{};
  std::string violation_;
};

}  // namespace horo::sim
