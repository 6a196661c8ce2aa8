// Coordinator: agrees with those of the other ranks which tensors are ready everywhere, and in which buckets and order
// all ranks reduce them. One runs on every rank; rank 0's is the leader. A pure state machine: no I/O, no thread, no
// clock.
//
// The first time, a tensor travels to the leader with its name and all that must be equal on all ranks. Once ready on
// all members it is released: every rank hears of it in one ordered stream, in which it also gets a number (its tensor
// id). From then on its readiness travels as a bit. At the end of a step the leader packs the step's tensors, in the
// order in which they became ready, into known plans; from then on a whole plan travels as one bit, and the hall
// reports one event per plan instead of one per tensor. A plan that does not come together any more (a tensor is
// missing and somebody waits for another, or a tensor changed its shape) is dissolved: its tensors travel one by one
// for the next hundred steps.
//
// A tensor of a process set needs the set's members, a send_recv its two ends; others hear nothing of it. Ranks that
// have joined a set are needed for nothing in it. The tensors of a unit are released together, or fail together.
//
// Diagnose the tensors of a set have different priorities, what is complete is released by priority, and held back
// while more than a credit of bytes is on its way in the set (flow.h).
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "horo/base/tensor_spec.h"
#include "horo/base/time.h"

namespace horo {

using Key = std::uint32_t;     // a tensor that this rank declared; local, never travels
using PlanId = std::uint32_t;  // a known plan; equal on all ranks, never used twice

// ---- Events: what happened on this rank.

// A tensor that is in no known plan (or whose plan was broken) is ready here. absent: this rank has nothing to add to
// it. A join comes after the reports of all that this rank submitted to the set before, in plans too; from then on to
// Joined nothing of the set comes. What comes all the same, or of a set that is no more, fails at once. The tensors of
// a unit come together, with no flush() in between.
struct Submitted {
  Key key = 0;
  bool absent = false;
};
// All tensors of a known plan are ready here, `absent` of them without a value.
struct PlanComplete {
  PlanId plan = 0;
  std::vector<Key> absent;
};
// This rank begins to use a plan it learned: no tensor of it is in flight, and until a Break all of them come by
// PlanComplete. Ranks begin at different moments, because a plan is learned while the next step's tensors may already
// travel one by one.
//
// The leader keeps, per plan, which ranks are active. A tensor of a live plan that comes one by one (id or name) from a
// rank that is not active in the plan yet is an ordinary report and does not dissolve it; from an active rank it does.
// A plan bit is kept as such only when all members are active and no tensor of the plan is waiting in the ready table;
// otherwise it counts at once as readiness of each of the plan's tensors (which are then released like any others).
// Tensors released that way are in a live plan, so the step end does not define them anew.
struct PlanActive {
  PlanId plan = 0;
};
// A message of another rank's coordinator.
struct Received {
  int from = 0;
  std::vector<std::byte> bytes;
};
// The caller ended a step of a set of which this rank is a member: what was released in it since the last one, and is
// stepwise, is one step's tensors.
struct StepEnded {
  std::uint32_t set = 0;
};
// A rank left in good order and will submit nothing more.
struct RankLeft {
  int rank = 0;
};
// The time of the last SetTimer has come.
struct TimerFired {};
// Collectives of the set that were to be told of (Release::reports_done) are over here: of so many tensors.
struct Done {
  std::uint32_t set = 0;
  std::uint32_t tensors = 0;
};
// What this rank's callers say to a Diagnose; empty where there is nobody to ask. Cut to kMaxAnswerBytes.
struct Diagnosed {
  std::uint64_t question = 0;
  std::string where;
};

using Event =
    std::variant<Submitted, PlanComplete, PlanActive, Received, StepEnded, RankLeft, TimerFired, Diagnosed, Done>;

// ---- Actions: what the hall has to do, in this order.

struct Send {
  int to = 0;
  std::vector<std::byte> bytes;
  bool has_names = false;
  bool has_bits = false;
};
// Run this collective now. Releases of a set come in the same order on all its members, and those of different sets do
// so on all ranks that are in both.
struct Release {
  std::uint32_t set = 0;
  std::uint64_t number = 0;       // rises; one number, one collective, the same on all its members
  std::vector<Key> keys;          // this rank's names for the bucket's tensors, in bucket order
  std::uint64_t key_hash = 0;     // of their names, in order
  std::vector<int> absent_ranks;  // members (world ranks) that have no value for these tensors; ascending
  bool known = false;             // it is all of a known plan, and
  PlanId plan = 0;                //   this one
  std::vector<int> ranks = {};    // who takes part (world ranks, ascending), where that is not the whole set: a
                                  // send_recv's two, or who has not joined
  bool reports_done = false;      // when it is over, the hall says so with Done
};
// The tensors were submitted as absent by every member: nothing to move, their Works end without a value.
struct Skip {
  std::vector<Key> keys;
};
// A process set exists from here on, on all ranks of the world. Sets are numbered from 1, in the order of the stream;
// a number is never used twice.
struct AddSet {
  std::uint32_t set = 0;
  std::string name;        // never empty
  std::vector<int> ranks;  // world ranks, ascending
  std::vector<Key> keys;   // of this rank's add_process_set, whose Works end with the number
};
// It exists no more; what was reported in it and not released has failed before, its plans were broken before, and what
// the hall reports for a Break of these fails in turn. What was released runs to its end.
struct RemoveSet {
  std::uint32_t set = 0;
  std::vector<Key> keys;
};
// All members of the set have joined; from here on none of them has. Nothing of the set is in flight but what was
// released, and unnamed operations are counted anew, because ranks may have made different numbers of them.
struct Joined {
  std::uint32_t set = 0;
  int last = 0;  // who came last (rank in the set)
  std::vector<Key> keys;
};
// These tensors' Works fail with Mismatch(text); the same text on every rank that submitted them.
struct Fail {
  std::vector<Key> keys;
  std::string text;
};
// A plan to come. The hall uses it from this rank's first StepEnded on at which none of its tensors is in flight, and
// says so with PlanActive (in the model of a simulator: right after that StepEnded; on rank 0 too).
struct Learn {
  PlanId plan = 0;
  std::vector<Key> keys;
};
// The plan is no more: report its tensors one by one again; those that were submitted and neither reported nor released
// by now, at once.
struct Break {
  PlanId plan = 0;
};
struct SetTimer {
  TimePoint at;
};
// Ask this rank's callers where they are, and say so with Diagnosed; after what came before in these actions.
struct Diagnose {
  std::uint64_t question = 0;
};
// One line for this rank's log.
struct Warn {
  std::string text;
};

using Action =
    std::variant<Send, Release, Skip, AddSet, RemoveSet, Joined, Fail, Learn, Break, SetTimer, Diagnose, Warn>;
using Actions = std::vector<Action>;

// When a tensor became ready on a rank, as the leader saw it.
struct ReadyTime {
  std::string name;
  std::vector<TimePoint> since;  // by world rank; TimePoint::min() where not known
};

constexpr std::size_t kMaxAnswerBytes = 2'048;

struct CoordinatorConfig {
  int rank = 0;
  int size = 1;
  std::size_t bucket_bytes = 25 << 20;              // 0: every tensor alone
  std::size_t least_bucket_bytes = 1 << 20;         // in a known plan, though that is more than a sixteenth of a step
  std::size_t credit_bytes = 2 << 20;               // on their way in a set, before what is less urgent waits
  std::size_t most_passed = 4'096;                  // that go before what waits because it is less urgent
  std::chrono::milliseconds stall_warning{10'000};  // 0: never
  std::chrono::milliseconds stall_limit{60'000};
  std::chrono::milliseconds answer_timeout{1'000};  // for a rank to say where it is, once the limit comes
  std::size_t max_name_bytes = 1'024;
  std::size_t max_dims = 64;
  std::size_t max_tensors = 1 << 20;
  std::size_t max_plans = 1 << 16;
};

// One thread at a time. Throws ProtocolError for a message that no coordinator would send, naming its sender.
class Coordinator {
 public:
  explicit Coordinator(const CoordinatorConfig& config);
  ~Coordinator();
  Coordinator(Coordinator&&) noexcept;

  // Before the first event that names the key. A key is declared once; a once-tensor's key is forgotten after its
  // release, skip or failure and may be declared anew.
  void declare(Key key, const TensorSpec& spec);

  // Takes one event; may add actions. Messages are gathered until flush().
  void on(const Event& event, TimePoint now, Actions& actions);

  // After a batch of events: forms buckets of what became ready everywhere (leader) and adds the gathered messages.
  void flush(TimePoint now, Actions& actions);

  // Of every tensor that it remembers and that became ready since the last step end but one, when each rank had it
  // ready (a tensor of a known plan: when the plan was complete there). Leader: of the last time that all ranks had it.
  // Other ranks: their own times only.
  std::vector<ReadyTime> ready_times() const;

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace horo
