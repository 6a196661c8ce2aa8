// Coordinator: agrees with the coordinators of the other ranks on which tensors are ready on all ranks, and in which
// buckets and order all ranks reduce them. One runs on every rank; that of rank 0 is the leader. A pure state machine:
// no I/O, no thread, no clock.
//
// The first report of a tensor carries its name and all properties that must be equal on all ranks. When all members of
// its process set have reported it, the leader releases it: the release is an item of one ordered stream to all ranks,
// which also gives the tensor a number (its tensor id). From then on its readiness is one bit. At the end of a step the
// leader packs the tensors of the step, in the order in which they became ready, into known plans; from then on the
// readiness of a whole plan is one bit, and the engine reports one event per plan instead of one per tensor. A plan
// that no longer completes (a tensor is missing and a caller waits for another one, or a tensor changed its shape) is
// dissolved: its tensors are reported one by one for the next 100 steps.
//
// A tensor of a process set needs the members of the set; a send_recv needs its two ranks, and the request of a set
// that its members make (TensorSpec::by_members) needs these. The others take no part in
// it. A rank that has joined a set is not needed for any tensor of the set. The tensors of a unit are released together
// or fail together.
//
// Where the tensors of a set have different priorities, complete tensors are released by priority, and wait while more
// than a credit of released bytes is unfinished in the set (flow.h).
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "horo/base/tensor_spec.h"
#include "horo/base/time.h"

namespace horo {

using Key = std::uint32_t;     // a tensor that this rank declared; local to the rank, never sent
using PlanId = std::uint32_t;  // a known plan; equal on all ranks, never reused

// ---- Events of this rank.

// A tensor is ready on this rank, and it is in no known plan or its plan was broken. absent: this rank contributes no
// value. A join follows the reports of everything that this rank submitted to the set before, plans included; until
// Joined no other report of the set follows it. A report that violates this, or that is of a removed set, fails at
// once. The tensors of a unit are reported together, without a flush() in between.
//
// lost: the tensor was in flight when the last epoch ended, and cannot run in this one. It fails on all members of its
// set, as lost; on those that have not submitted it, when they do. A message (send_recv) fails on this rank alone.
//
// alone: its unit was released in the last epoch, and some of the unit's tensors have ended there: it runs without
// them.
struct Submitted {
  Key key = 0;
  bool absent = false;
  bool lost = false;
  bool alone = false;
  TimePoint at = TimePoint::min();  // when the caller submitted it; min(): not before the event
};
// All tensors of a known plan are ready on this rank; the tensors in `absent` have no value.
struct PlanComplete {
  PlanId plan = 0;
  std::vector<Key> absent;
  TimePoint at = TimePoint::min();  // as above, of its last tensor
};
// This rank begins to use a plan that it learned: none of its tensors is in flight, and until a Break all of them are
// reported by PlanComplete. Ranks begin at different times, because a plan may be learned when tensors of the next step
// have already been reported one by one.
//
// The leader stores which ranks are active in each plan. A tensor of a live plan that is reported alone (by id or name)
// is an ordinary report if the rank is not yet active in the plan; from an active rank it dissolves the plan. The
// report of a whole plan is stored as one bit only if all members are active and no tensor of the plan is in the ready
// table; otherwise it counts at once as a report of each of the plan's tensors (which are then released like other
// tensors). Tensors that are released that way are in a live plan, so the step end does not define another plan for
// them.
struct PlanActive {
  PlanId plan = 0;
};
// A message from the coordinator of another rank.
struct Received {
  int from = 0;
  std::vector<std::byte> bytes;
};
// The caller ended a step of a set of which this rank is a member: the stepwise tensors that were released in the set
// since its last step end belong to one step.
struct StepEnded {
  std::uint32_t set = 0;
  TimePoint at = TimePoint::min();  // as above
};
// A rank has left in good order and will submit nothing more.
struct RankLeft {
  int rank = 0;
};
// The time of the last SetTimer has passed.
struct TimerFired {};
// Collectives of the set that were released with Release::reports_done have finished on this rank; tensors: the total
// number of their tensors.
struct Done {
  std::uint32_t set = 0;
  std::uint32_t tensors = 0;
};
// The waits of this rank's callers, if every thread that has submitted a tensor waits now; else there are none.
struct CallerWaits {
  Duration unchanged{};                   // no caller has begun or ended a wait, or submitted, within this time
  std::vector<std::vector<Key>> threads;  // the keys that each thread waits for; it continues when all have ended
};
// This rank's answer to a Diagnose: the call sites of its callers; empty if this is not a Python program. Cut to
// kMaxAnswerBytes.
struct Diagnosed {
  std::uint64_t question = 0;
  std::string call_sites;
  CallerWaits waits = {};
};
// A round of a round stream (TensorSpec::round_stream), as the caller numbers it. The numbers of a rank rise, and
// may begin anew after a join of the set.
struct RoundNumber {
  std::uint64_t step = 0;
  std::uint64_t round = 0;  // in the step
  bool operator==(const RoundNumber&) const = default;
  bool operator<(const RoundNumber& other) const {
    return step != other.step ? step < other.step : round < other.round;
  }
};
// A round stream of a process set. Each rank has one current round in it, or none.
struct RoundStream {
  std::uint32_t set = 0;
  std::uint64_t number = 0;
  bool operator==(const RoundStream&) const = default;
  bool operator<(const RoundStream& other) const { return set != other.set ? set < other.set : number < other.number; }
};
// The later reports of this rank of tensors of the stream belong to this round. It travels with the next report, and
// causes no message alone. The engine has reported every tensor of the stream that was submitted before, those of
// incomplete plans too.
//
// The leader stores the round of each report. A tensor that ranks report in different rounds fails like one with
// different specs.
struct RoundBegun {
  RoundStream stream;
  RoundNumber round;
};
// This rank will not report the other tensors of its current round of the stream. On the other ranks each tensor that
// they report in that round, and that this rank has not reported in it, fails at once. Reason: cut to kMaxReasonBytes.
struct RoundFailed {
  RoundStream stream;
  std::string reason;
  std::uint64_t begun = 0;  // Item::round of the round; not told to other ranks
};

// A person asks what the ranks wait for: on rank 0 alone. Explain follows.
struct AskedWhy {
  std::uint64_t question = 0;
  std::string in_flight;  // see WaitReport
};
// Figures of a step of this rank, for rank 0. They travel with the next report, and cause no message alone; the last
// ones count. At most kMaxFiguresBytes; their meaning is the engine's.
struct OwnFigures {
  std::vector<std::byte> bytes;
  TimePoint at;  // which the figures are of
};
using Event = std::variant<Submitted, PlanComplete, PlanActive, Received, StepEnded, RankLeft, TimerFired, Diagnosed,
                           Done, RoundBegun, RoundFailed, AskedWhy, OwnFigures>;

// ---- Actions that the engine must carry out, in this order.

struct Send {
  int to = 0;
  std::vector<std::byte> bytes;
  bool has_names = false;  // it refers to tensors by name
  bool has_bits = false;   // it refers to tensors or plans by number
};
// Run this collective now. All members of a set receive its releases in the same order; ranks that are in two sets
// receive the releases of both in the same order.
// The release of a rebuild, a request of all ranks, is the last action of an epoch: this coordinator is not used again.
struct Release {
  std::uint32_t set = 0;
  std::uint64_t number = 0;       // rises; the same for one collective on all its members, and used for no other
  std::vector<Key> keys;          // this rank's keys of the bucket's tensors, in bucket order
  std::uint64_t key_hash = 0;     // of the tensors' names, in bucket order
  std::vector<int> absent_ranks;  // members (world ranks) that have no value for these tensors; ascending
  bool known = false;             // the bucket is a complete known plan
  PlanId plan = 0;                // that plan, if known
  std::vector<int> ranks = {};    // participating ranks (world ranks, ascending) if they are not the whole set: the two
                                  // of a send_recv, or those that have not joined
  bool reports_done = false;      // when it has finished, the engine reports it with Done
  // The rank that was ready last; -1: not known. When it was ready, on the clock that all ranks have; else min(), and
  // the leader sent the release this much later.
  int last = -1;
  TimePoint ready = TimePoint::min();
  std::chrono::microseconds hold{};
};
// Every member submitted these tensors as absent: no data moves, and their Works end without a value.
struct Skip {
  std::vector<Key> keys;
};
// A process set exists from here on, on all ranks of the world. Sets are numbered from 1 in the order of the stream; a
// number is never reused.
struct AddSet {
  std::uint32_t set = 0;
  std::string name;         // never empty
  std::vector<int> ranks;   // world ranks, ascending
  bool shrinks = false;     // in an elastic job it goes on when it has lost members
  bool by_members = false;  // its members alone have added it, and will remove it
  std::vector<Key> keys;    // of this rank's add_process_set, whose Works end with the number; may be none
};
// The set no longer exists. By earlier actions its tensors that were reported and not released have failed, and its
// plans were broken; the reports that follow from these Breaks fail as well. Released collectives run to their end.
struct RemoveSet {
  std::uint32_t set = 0;
  std::vector<Key> keys;
};
// All members of the set have joined; from here on none of them counts as joined. Only released collectives of the set
// are in flight. Unnamed operations are counted from zero again, because ranks may have made different numbers of them.
struct Joined {
  std::uint32_t set = 0;
  int last = 0;  // the member that joined last (rank in the set)
  std::vector<Key> keys;
};
// The Works of these tensors fail with Mismatch(text), or with PeerLost if they are lost; the text is the same on every
// rank that submitted them.
struct Fail {
  std::vector<Key> keys;
  std::string text;
  bool lost = false;
};
// A plan was defined. The engine uses it from this rank's first StepEnded on at which none of its tensors is in flight,
// and reports that with PlanActive right after that StepEnded; on rank 0 too.
struct Learn {
  PlanId plan = 0;
  std::vector<Key> keys;
};
// The plan no longer exists: report its tensors one by one again. Those that were submitted, and neither reported nor
// released, are reported at once.
struct Break {
  PlanId plan = 0;
};
struct SetTimer {
  TimePoint at;
};
// Read the call sites of this rank's callers and report them with Diagnosed, after the events that earlier actions
// cause.
struct Diagnose {
  std::uint64_t question = 0;
};
// One line for this rank's log.
struct Warn {
  std::string text;
};
// The answer to the last AskedWhy: a WaitReport (wait_report.h), encoded.
struct Explain {
  std::uint64_t question = 0;
  std::vector<std::byte> report;
};

// On rank 0: figures of another rank.
struct OtherFigures {
  int rank = 0;
  std::vector<std::byte> bytes;
  TimePoint at;  // on the clock of rank 0
};

using Action = std::variant<Send, Release, Skip, AddSet, RemoveSet, Joined, Fail, Learn, Break, SetTimer, Diagnose,
                            Warn, Explain, OtherFigures>;
using Actions = std::vector<Action>;

// When a tensor became ready on each rank, by the leader's clock.
struct ReadyTime {
  std::string name;
  std::vector<TimePoint> since;  // by world rank; TimePoint::min() if not known
};

constexpr std::size_t kMaxAnswerBytes = 2'048;
constexpr std::size_t kMaxReasonBytes = 1'024;
constexpr std::size_t kMaxFiguresBytes = 512;
constexpr std::size_t kMaxWaitingThreads = 32;  // of an answer; a rank with more reports no waits
constexpr std::size_t kMaxAwaitedTensors = 16;  // of one thread; the others are left out

// What this rank has applied of the leader's stream, and what the last messages changed besides running collectives:
// process sets, joins, failures and skips. By number of the message, encoded.
struct StreamEffects {
  std::uint64_t applied = 0;    // messages
  std::uint64_t forgotten = 0;  // the effects of so many of the first of them are not kept any more
  std::map<std::uint64_t, std::vector<std::byte>> effects;
};

class SetTable;

struct CoordinatorConfig {
  int rank = 0;
  int size = 1;
  std::size_t bucket_bytes = 25 << 20;               // most bytes of a bucket; 0: every tensor is a bucket
  std::size_t least_bucket_bytes = 1 << 20;          // a known plan holds this, even if it is over 1/16 of the step
  std::size_t credit_bytes = 2 << 20;                // unfinished bytes in a set above which less urgent tensors wait
  std::size_t most_passed = 4'096;                   // younger tensors that are released before one that waits
  std::chrono::milliseconds stall_warning{10'000};   // 0: no warnings
  std::chrono::milliseconds stall_limit{0};          // 0: none
  std::chrono::milliseconds deadlock_limit{60'000};  // 0: no search for deadlocks
  std::chrono::milliseconds answer_timeout{1'000};   // for a rank's answer to a Diagnose
  std::size_t max_name_bytes = 1'024;
  std::size_t max_dims = 64;
  std::size_t max_tensors = 1 << 20;
  std::size_t kept_tensors = 1 << 16;  // with a number; above it those not in use are forgotten
  std::size_t max_plans = 1 << 16;
  std::size_t max_sets = 64;  // process sets that exist at once, beside the world
  // Of the streams beyond it, rank 0 forgets the one in which no rank has begun a round for the longest time: its
  // rounds are not compared any more.
  std::size_t max_round_streams = 256;
  // An epoch may end at different places of the stream on different ranks. Each rank reports at once when the epoch
  // begins, and the stream begins when all have reported.
  bool elastic = false;
  bool has_one_clock = false;        // all ranks are on one host
  std::size_t kept_effects = 4'096;  // of the last messages of an elastic job, and
  std::size_t kept_effect_bytes = 8 << 20;
};

// Used by one thread at a time; never blocks. Throws ProtocolError, which names the sender, for a message that no
// correct coordinator sends.
class Coordinator {
 public:
  explicit Coordinator(const CoordinatorConfig& config);
  // For the epoch after that of `before`, which has ended: the process sets exist in it, except for those that have
  // lost a member, and nothing is declared or reported. rank_of: by rank of the last epoch, the rank in this one, which
  // has the same order; -1: lost.
  Coordinator(const CoordinatorConfig& config, const Coordinator& before, const std::vector<int>& rank_of);
  // For a rank that joins a running job, whose process sets these are.
  Coordinator(const CoordinatorConfig& config, const SetTable& sets);
  ~Coordinator();
  Coordinator(Coordinator&&) noexcept;

  // Must precede the first event with this key. A key is declared once; the key of a once-tensor is forgotten after its
  // release, skip or failure, and may then be declared again.
  void declare(Key key, const TensorSpec& spec);

  // Ends a declaration; another tensor may have the key from then on. The tensor must not be in flight, once, stepwise
  // or in a plan.
  void undeclare(Key key);

  // Takes one event; may append actions. Messages are collected until flush().
  void on(const Event& event, TimePoint now, Actions& actions);

  // Call after a batch of events: forms buckets of the tensors that became ready on all ranks (leader), and appends the
  // collected messages.
  void flush(TimePoint now, Actions& actions);

  // Leader: how long a message of this rank is at least under way to it. Where the ranks are on several hosts, what a
  // rank reports was ready so much earlier than it came.
  void set_way(int rank, Duration way);

  // The process sets that exist at this place in the stream: their ranks, by number.
  std::map<std::uint32_t, std::vector<int>> sets() const;

  // The epoch has ended at different places of the stream on different ranks. catch_up() applies the effects of
  // messages that other ranks have applied and this one has not; the engine performs the actions.
  StreamEffects effects() const;
  void catch_up(const std::map<std::uint64_t, std::vector<std::byte>>& effects, Actions& actions);

  // The times at which each rank had each tensor ready, for every stored tensor that became ready since the last step
  // end but one (a tensor of a known plan: when the plan was complete on the rank). Leader: of the last instance that
  // all ranks had ready. Other ranks: only their own times.
  std::vector<ReadyTime> ready_times() const;

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace horo
