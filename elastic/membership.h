// JobMembership: decides which processes are the members of an elastic job. A pure state machine: no I/O, no thread, no
// clock. Events are what the guard sees of its children and what they send; actions are what the guard must do.
// docs/protocol.md has the states, the rules and the reasons.
#pragma once

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "elastic/broken_links.h"
#include "elastic/departures.h"
#include "elastic/joiners.h"
#include "elastic/messages.h"
#include "elastic/parking.h"
#include "elastic/silences.h"
#include "horo/base/time.h"

namespace horo {

struct MembershipConfig {
  int members = 1;                                  // at the start: MemberIds 0 to members - 1
  int min_members = 1;                              // below it the others park; those that left in good order count
  std::chrono::milliseconds silence_limit{10'000};  // a member that is stopped, or does not freeze, for so long is
                                                    // evicted if another one waits
  std::chrono::milliseconds start_limit{120'000};   // the same for a member that has sent nothing yet: it is starting
  std::chrono::milliseconds alike_window{1'000};    // after a failure: so long the others may fail alike
  std::chrono::milliseconds park_timeout{60'000};   // so long silent members without which too few are left are waited
                                                    // for; then the job ends
  std::vector<std::uint32_t> hosts{};               // of the members, by id; empty: all have one

  // ---- Processes that are started later, on a job of one host.
  int max_members = 0;                               // of an epoch in which some join; 0: none joins
  std::chrono::milliseconds join_window{2'000};      // so long one that is ready waits for others that are started
  std::chrono::milliseconds join_timeout{60'000};    // the members come to no border for so long: the story says it
  std::chrono::milliseconds border_patience{1'000};  // after the first member at a border: then all others freeze
  std::chrono::milliseconds joiner_limit{1'000};     // the silence after which a member without the state is evicted
};

// ---- Events.

// The process has ended: its exit code or signal as words ("signal 9 (SIGKILL)"), and whether it ended with code 0.
struct MemberEnded {
  MemberId id = 0;
  bool succeeded = false;
  std::string how;
};
// The guard has started a process that may join. Ids are given in order: the first one is config.members.
struct MemberStarted {
  MemberId id = 0;
};
// The guard starts no process in the places of those that are lost, or not for so long as the members may be parked.
struct NoneIsStarted {};
struct MemberStopped {  // SIGSTOP
  MemberId id = 0;
};
struct MemberContinued {
  MemberId id = 0;
};
struct MemberDrained {  // it has got a notice, as all members of its host
  MemberId id = 0;
};
struct MemberSent {
  MemberId id = 0;
  MemberMessage message;
};
// The host of these members is not heard any more. They are given up if another member waits for them.
struct MembersUnheard {
  std::vector<MemberId> ids;
  std::string why;  // "did not answer for 10 s", after "it"
};
struct MembersHeard {  // again
  std::vector<MemberId> ids;
};
struct TimePassed {};
using MembershipEvent = std::variant<MemberStarted, NoneIsStarted, MemberEnded, MemberStopped, MemberContinued,
                                     MemberDrained, MemberSent, MembersUnheard, MembersHeard, TimePassed>;

// ---- Actions, in this order.

struct SendToMember {
  MemberId id = 0;
  std::shared_ptr<const GuardMessage> message;  // one object for all members that get it at one time
};
// One line of the job's story: which member died, how it was seen, what was decided, how long it took.
struct Say {
  std::string text;
};
// The job cannot go on. The processes that are left are ended by the caller.
struct EndJob {
  std::string text;
};
using MembershipAction = std::variant<SendToMember, Say, EndJob>;

// A member in words for a person.
struct MemberState {
  std::string word;  // starting, running, installing, frozen, parked, stopped, silent; or left, failed, died, evicted;
                     // of one that joins: starting, ready, joining
  std::string detail;  // why it failed, died or was evicted, as it was sent: may have control characters; kDrained: it
                       // leaves or has left after a notice
  bool can_answer = false;  // it has a session, and its process runs
  bool operator==(const MemberState&) const = default;
};

// What a decision maker that starts anew must know. All else is told again by the guards.
struct MembershipSnapshot {
  enum class Presence : std::uint8_t { kHere, kLeft, kFailed, kDied, kEvicted };
  struct Member {
    Presence presence = Presence::kHere;
    std::string detail;        // how it went out
    std::string failure = {};  // of its failed Leave
    bool operator==(const Member&) const = default;
  };
  std::vector<Member> members;       // by id
  View view;                         // of the current epoch, without its secret; epoch 0 has no progress and no effects
  std::optional<Settle> settled{};   // the last one, of the current epoch or the one before
  std::optional<std::string> end{};  // of EndJob, if it was given
  // Epochs that ended by this pair alone. Members of different hosts count as their hosts.
  BrokenLinks::Counts broken_pairs{}, broken_hosts{};
  bool operator==(const MembershipSnapshot&) const = default;
};

class JobMembership {
 public:
  // Epoch 0 has all members; each of them is in it when it sends its first message or is lost before.
  explicit JobMembership(const MembershipConfig& config);
  // Goes on where another one was. It evicts no member before `evicts_from`, so that the guards can tell what they
  // know. Throws ProtocolError if the snapshot does not fit the config.
  JobMembership(const MembershipConfig& config, const MembershipSnapshot& snapshot, TimePoint evicts_from);

  // Takes one event. The secret of a View in an action is zero: the caller draws one per epoch. `now` never decreases.
  std::vector<MembershipAction> on(const MembershipEvent& event, TimePoint now);
  // These members may have lost all messages since: sends again what they still need.
  struct Touched {
    MemberId id = 0;
    std::uint32_t viewed = 0;  // the epoch of the last View that the member was given
  };
  std::vector<MembershipAction> tell_again(const std::vector<Touched>& members, TimePoint now);
  MembershipSnapshot snapshot() const;
  // Makes it equal to snapshot(), of which it must be an earlier result.
  void update(MembershipSnapshot& snapshot) const;
  std::uint64_t changes() const { return changes_; }  // rises when snapshot() changes
  // The caller did not run for a while, or could hear no member: silence and time to wait count from `now`.
  void count_from(TimePoint now);
  // When TimePassed is due, or earlier; nothing: not before another event.
  std::optional<TimePoint> next_deadline() const;

  std::uint32_t epoch() const { return epoch_; }
  const std::vector<MemberId>& members() const { return view_; }  // of the current epoch, by rank
  bool has_silent() const { return has_silent_; }  // a member is silent for too long, whether another one waits or not
  bool is_parked() const { return parking_.is_on() || joiner_wait_.is_on(); }
  bool is_over() const;  // EndJob was given, or no member is left: each has left, ended or been evicted
  std::size_t processes() const { return members_.size(); }  // that were started so far: the next id
  // A process that is started now could join: all members of the epoch have said that they can go on with it, none has
  // a notice and none has left.
  bool can_grow() const;
  // The members whose ends decide the job's: those that left in good order, and those of the last epoch that are here,
  // if they are enough to go on; else all members. Processes that never had the state are none of them.
  std::vector<MemberId> judged_members() const;
  bool is_evicted(MemberId id) const { return at(id).presence == Presence::kEvicted; }
  bool is_out(MemberId id) const { return !is_here(id); }
  MemberState state_of(MemberId id) const;
  const std::optional<std::string>& end_text() const { return end_; }  // of EndJob, if it was given

 private:
  using Presence = MembershipSnapshot::Presence;
  struct Member {
    Presence presence = Presence::kHere;
    std::string detail;         // how it went out
    bool is_installed = false;  // in the current epoch
    bool is_drained = false;    // its host has got a notice
    std::string failure;        // of its failed Leave, and when that came
    TimePoint failed{};
    std::optional<Frozen> frozen;  // in the current epoch
  };
  // Why the current epoch ends: the first evidence.
  struct Closing {
    std::optional<MemberId> lost;
    std::string reason;
    bool is_report = false;                               // of a member that froze; a cause replaces it
    bool is_border = false;                               // a member is at a border; any other evidence replaces it
    std::optional<std::pair<MemberId, MemberId>> pair{};  // the first member that missed another one, and that one
  };

  void handle(const MemberStarted& event);
  void handle(const NoneIsStarted&);
  void handle(const MemberEnded& event);
  void handle(const MemberStopped& event);
  void handle(const MemberContinued& event);
  void handle(const MemberDrained& event);
  void handle(const MemberSent& event);
  void handle(const MembersUnheard& event);
  void handle(const MembersHeard& event);
  void handle(const TimePassed&) {}
  void take(MemberId id, const Frozen& message);
  void take(MemberId id, const Installed& message);
  void take(MemberId id, const Leave& message);
  void take(MemberId, const Report&) {}
  void take(MemberId id, const CanGrow& message);
  void take(MemberId, const Ready&) {}
  void take(MemberId id, const Synced& message);
  void take_from_outside(MemberId id, const MemberMessage& message);
  void fail(MemberId id, const Leave& message);
  void take_back_leave(MemberId id, const Leave& message);

  std::vector<MembershipAction> conclude();
  void depart(MemberId id, Presence how, const std::string& story, const std::string& reason);
  void close_epoch(std::optional<MemberId> lost, const std::string& reason);
  void open_border();
  void ask_to_freeze();
  void lose_joiner(MemberId id, Presence how, const std::string& detail, const std::string& verb);
  void refuse_joiner(MemberId id, const std::string& why);
  void compare_terms();
  void tell_grow();
  void tell_full(bool is_full);
  void refuse_first_ranks();
  std::size_t most_members(MemberId member) const;
  void add_joiners(View& view) const;
  bool has_failed_border(const View& view) const;
  void tell_begin(const View& view);
  bool drop_silent_joiner(const std::vector<MemberId>& members, const std::vector<MemberId>& silent);
  void drop_useless_joiners();
  bool wait_for_joiners();
  void end_without_state();
  void evict(MemberId id, const std::string& why);
  void evict(MemberId id, const std::string& why, const std::string& for_members);
  void judge_silence();
  void give_up(const std::vector<MemberId>& silent);
  void tell_missed(const std::vector<MemberId>& silent);
  void hold(const std::vector<MemberId>& silent);
  void end_hold();
  void decide();
  std::optional<TimePoint> alike_until() const;
  void settle();
  void count_broken_pair();
  void count_broken_hosts(std::uint32_t one, std::uint32_t other);
  void begin_epoch(const std::vector<MemberId>& members);
  std::optional<Effects> effects_of(const std::vector<MemberId>& members) const;
  void end_without_effects(const std::vector<MemberId>& members);
  void end_too_large(const std::vector<MemberId>& members);
  void end_for_all(const std::vector<MemberId>& members, const std::string& why);
  void end_too_few();
  void restore_departure(MemberId id);
  void restore_failed_exits();
  void recount();
  void tell_view_again(const Touched& touched);
  void end_job(const std::string& text);
  void tell_running();
  void tell_over();

  Member& at(MemberId id);
  const Member& at(MemberId id) const;
  bool is_here(MemberId id) const { return at(id).presence == Presence::kHere; }
  std::vector<MemberId> here() const;  // of the current epoch
  bool is_enough(std::size_t with_state) const;
  std::size_t left_in_order() const;
  std::size_t with_state(const std::vector<MemberId>& ids) const;
  bool is_outside(MemberId id) const { return joiners_.is_outside(id); }
  bool has_state(MemberId id) const { return joiners_.has_state(id); }
  // It joins, or has joined and is out of the epoch without having left in good order.
  bool is_joiner_apart(MemberId id) const;
  std::optional<TimePoint> join_deadline() const;
  bool is_settled() const { return settled_ && std::get<Settle>(*settled_).epoch == epoch_; }
  bool is_waited_for(MemberId id) const { return is_here(id) && !at(id).frozen; }
  bool is_waiting(MemberId id) const { return is_here(id) && at(id).frozen && !silences_.is_still(id); }
  std::uint32_t host_of(MemberId id) const { return config_.hosts.empty() ? 0 : config_.hosts.at(id); }
  std::string name_of(MemberId id) const;                    // for members: "rank 1 (rank 2 at the start)"
  std::size_t rank_of(MemberId id) const;                    // in the epoch
  std::string cause_text() const;                            // why the epoch ends, for the story
  static std::string left_words(const std::string& reason);  // " left (drained)"
  std::string failed_words(MemberId id) const;               // "rank 2 failed (exit code 3)"
  std::string left_text(const std::vector<MemberId>& left) const;
  void send(MemberId id, std::shared_ptr<const GuardMessage> message);
  void send(MemberId id, GuardMessage message);
  void send_all(const std::vector<MemberId>& ids, GuardMessage message);
  void say(const std::string& text) { actions_.emplace_back(Say{text}); }

  const MembershipConfig config_;
  std::vector<Member> members_;  // by id
  std::vector<MemberId> view_;
  std::uint32_t epoch_ = 0;
  // Of view_: members that are here; of these, members with the state, that are waited for, and members that run in
  // this epoch.
  std::size_t here_ = 0, with_state_ = 0, waited_for_ = 0, installed_ = 0;
  std::uint64_t changes_ = 0;
  std::shared_ptr<const GuardMessage> sent_view_;  // of this epoch, if it is not the first
  std::shared_ptr<const GuardMessage> settled_;    // the last one, of this epoch or the one before; null: none
  bool is_restored_ = false;                       // another one has begun the current epoch
  std::optional<Closing> closing_;
  bool has_asked_ = false;  // all that are waited for
  Silences silences_;
  // Silence need not be judged before; nothing: it is to be judged now.
  std::optional<TimePoint> next_judgement_;
  bool has_silent_ = false, is_waited_ = false;  // in the last judgement: a member is silent for too long, one waits
  std::vector<MemberId> missed_;                 // as the members of the epoch were told last
  bool has_told_missed_ = false;                 // they were told of any
  Departures departures_;
  std::optional<TimePoint> began_;  // the first evidence that led to the current epoch, until all members run in it
  BrokenLinks broken_;
  Joiners joiners_;
  TimePoint border_until_{};        // closing_->is_border: then the others are asked to freeze
  TimePoint joining_since_{};       // the members wait since then, in the last epoch in which some joined
  Parking parking_, joiner_wait_;   // for silent members; for some that are ready to join
  bool has_waited_ = false;         // and they did not come back in time
  bool is_full_told_ = false;       // the members are as many as their script can have, and a process waits
  bool may_wait_ = true;            // processes may be started while the members are parked
  std::optional<std::string> end_;  // of EndJob, if it was given
  bool is_over_told_ = false;
  TimePoint now_{};
  std::vector<MembershipAction> actions_;
};

}  // namespace horo
