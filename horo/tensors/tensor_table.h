// TensorTable: the tensors of a session, and what callers handed in that the engine has not looked at yet. It knows
// which declared tensors are in flight and, for known plans, how many tensors are still missing, so that the submit
// that completes a plan is the only one that the engine hears of.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "controller/coordinator.h"
#include "horo/base/config.h"
#include "horo/base/failure.h"
#include "horo/base/mutex.h"
#include "horo/tensors/known_sets.h"
#include "horo/tensors/registry.h"
#include "horo/tensors/work.h"

namespace horo {

// One tensor that the caller has ready.
//
//   kind            in                                      out
//   all_reduce      the tensor                              as in
//   reduce          the tensor                              root: as in; others: not written, may be null
//   reduce_scatter  the tensor                              this rank's rows
//   broadcast       root: the tensor; others: not read      as in
//   all_gather      the tensor                              null, or room for all rows
//   gather          the tensor                              root: null, or room for all rows; others: not written
//   all_to_all      rows for each member, in their order    null, or room for all rows
//   scatter         root: rows for each member              null, or room for this rank's rows
//   send_recv       root: the tensor; peer: not read        peer: as in; root: not written
//   barrier         null                                    null
//
// in and out are equal, or disjoint. Where out may be null, the size of the result is what the ranks tell each other:
// without out it is new memory of the Work (Outcome::data); with it the Work fails where out_bytes is not enough.
struct Submission {
  Key key = 0;
  const void* in = nullptr;
  void* out = nullptr;
  bool absent = false;  // nothing to add (all_reduce): in is not read
  std::size_t out_bytes = 0;
  std::vector<std::int64_t> splits = {};  // all_to_all, scatter at the root: rows for each member; empty: evenly
};

// Whether submissions lie one behind the other, and are read and written in place: then nobody has to pack them.
class SideBySide {
 public:
  // The next one, of so many bytes. False: it does not lie there.
  bool add(const Submission& submission, std::size_t bytes) {
    if (bytes == 0) return true;
    auto* const out = static_cast<std::byte*>(submission.out);
    if (submission.in != out || (next_ != nullptr && out != next_)) return false;
    if (first_ == nullptr) first_ = out;
    next_ = out + bytes;
    return true;
  }
  std::byte* first() const { return first_; }  // null: there was none with bytes

 private:
  std::byte* first_ = nullptr;
  std::byte* next_ = nullptr;
};

// A submission on its way: what a lane needs to know of it. The spec lives as long as the tensor_table.
struct Item {
  const TensorSpec* spec = nullptr;
  Submission submission;
  std::shared_ptr<Work> work;
  std::size_t bytes = 0;  // of the spec, which would have to count them; 0: of what moves nothing
};

// A known plan of which this rank has everything, and not side by side: a lane may pack it while the others get ready.
struct FilledPlan {
  PlanId plan = 0;
  std::vector<Item> items;  // in bucket order
};

// Where a tensor lies in the bucket of a known plan.
struct BucketPlace {
  PlanId plan = 0;  // of which the rest is; 0: it is in none that this rank uses
  std::size_t offset = 0;
  std::size_t bytes = 0;  // of the bucket
};

// Any thread may call anything; nothing blocks but gather().
class TensorTable {
 public:
  static constexpr std::size_t kGatheredBytes = 1 << 20;

  // The registry outlives the tensor_table.
  TensorTable(const Config& config, const Registry& registry);

  // The key of the spec: the same one for an equal spec. An unnamed spec (once, no name) is named by the order of its
  // declaration: "all_reduce#7". The name of a send_recv gets its ranks: "x (0 to 1)". Throws std::invalid_argument for
  // a spec that cannot be, in its process set.
  Key declare(const TensorSpec& spec);

  struct Put {
    std::vector<std::shared_ptr<Work>> works;
    std::vector<FilledPlan> filled;
    bool wake = false;  // the engine rests and has not been woken since
  };
  // All or nothing, where memory runs out too (but that a tensor may have been declared). Throws std::invalid_argument
  // (null buffer, name in flight), or what close() was given.
  Put put(std::span<const Submission> submissions);
  // declare() and put(), whose keys are not read. Where it throws, no number of an unnamed tensor has been used up.
  Put put(const TensorSpec& spec, Submission submission);
  // The same for tensors of one set that are one unit; an empty name is given by order, as that of an unnamed tensor.
  // Those without a name are called <unit>_<i>of<count>.
  Put put_unit(const std::string& unit, std::vector<TensorSpec> specs, std::vector<Submission> submissions);
  // What ranks agree on like a tensor and that moves nothing: kAddSet, kRemoveSet, kJoin.
  Put ask(TensorSpec spec);

  SetInfo set_info(std::uint32_t set) const;
  // Throws std::invalid_argument for a set that this rank is not in, or what close() was given.
  void check_mine(std::uint32_t set) const;

  // The caller waits for these: what is in plans that are not complete here is reported one by one. True: wake the
  // engine.
  bool nudge(std::span<const Key> keys);

  // The caller ended a step: learned plans with no tensor in flight become active. True: wake the engine. Throws
  // std::invalid_argument for a set that this rank is not in.
  bool step_end(std::uint32_t set);
  std::vector<BucketPlace> places(std::span<const Key> keys) const;
  // Another one whenever places() may say something else than before.
  std::uint64_t plans_version() const;

  // ---- The engine's side.

  struct Batch {
    std::vector<std::pair<Key, const TensorSpec*>> declared;  // before the events that name them
    std::vector<Event> events;
  };
  Batch take();
  // Blocks while more comes in that nobody waits for, with no pause as long as `quiet`, and at most until then: a burst
  // of submits is taken in few pieces.
  void gather(TimePoint until, Duration quiet);
  // The engine is about to sleep: whoever hands in something has to wake it. False: there is something already.
  bool rest();
  void learn(PlanId plan, const std::vector<Key>& keys);
  // Forgets the plan; what was submitted and not reported comes back as events.
  std::vector<Event> forget_plan(PlanId plan);
  // The submissions of these tensors, which are in flight.
  std::vector<Item> items(std::span<const Key> keys) const;

  // A process set exists from now on, or does no more: what is submitted to it is refused.
  void add_set(std::uint32_t set, const std::string& name, const std::vector<int>& ranks);
  void remove_set(std::uint32_t set);

  // All have joined the set: they may have made different numbers of unnamed calls, which are counted anew.
  void count_anew(std::uint32_t set);

  // The collective of these tensors is over: they may be submitted again. Before their Works are finished; between the
  // two nobody else knows these, so that whoever settles can then only finish them: what may throw comes before this.
  void settle(std::span<const Key> keys) noexcept;

  // Whether callers have handed in what has not ended.
  bool has_in_flight() const;

  // From now on put() throws `failure`, unless it was closed before. True: something is in flight, which lanes may
  // still settle and finish.
  bool close(FailurePtr failure) noexcept;
  // Once it is closed and no lane lives: all Works that are still in flight fail with what close() was given.
  void fail_all() noexcept;

 private:
  // All specs that were declared under one name: only one of them can be in flight.
  struct Name {
    std::vector<Key> keys;
    bool in_flight = false;
  };
  using NameKey = std::tuple<std::uint32_t, std::uint32_t, std::string>;
  using Names = std::map<NameKey, Name>;
  struct Plan {
    std::vector<Key> keys;
    std::size_t waiting = 0;  // submitted and not reported; all of them: the plan is complete
    bool active = false;
    bool broken = false;  // report one by one: somebody waited before it was complete
  };
  struct Tensor {          // first what every submit looks at
    Name* name = nullptr;  // in names_, whose nodes stay where they are; null: no tensor has this key
    Plan* plan = nullptr;  // active plan that it is in, in plans_
    PlanId plan_id = 0;
    std::uint32_t set = 0;       // the spec's
    bool reported = false;       // the engine knows of this submission
    bool plain = false;          // an all_reduce: with an in and an out, and no more, a submission to it is right
    std::shared_ptr<Work> work;  // in flight if not null
    Submission submission;
    std::size_t bytes = 0;       // of the spec
    Names::iterator place = {};  // of the name in names_
    TensorSpec spec;
  };

  // What a spec is called, and the counter of unnamed ones that it takes its number from.
  struct Named {
    TensorSpec spec;
    std::uint64_t* counter = nullptr;
  };

  // So that as many more can be added without memory. Doubles, for it is called for a few at a time.
  template <class T>
  static void make_room(std::vector<T>& list, std::size_t more) {
    const std::size_t size = list.size() + more;
    if (list.capacity() < size) list.reserve(std::max(size, 2 * list.capacity()));
  }

  Named named(const TensorSpec& spec) REQUIRES(mutex_);
  void check_room(std::size_t tensors, bool once) const REQUIRES(mutex_);
  void check_in_flight(const TensorSpec& spec) const REQUIRES(mutex_);
  Key find_or_add(const TensorSpec& spec) REQUIRES(mutex_);
  Key add(const TensorSpec& spec, Names::iterator place) REQUIRES(mutex_);
  const SetInfo& open_set(const TensorSpec& spec) const REQUIRES(mutex_);
  void check(std::span<const Submission> submissions) REQUIRES(mutex_);
  Put accept(std::span<const Submission> submissions) REQUIRES(mutex_);
  void begin(const Submission& submission, Put& put) REQUIRES(mutex_);
  void take_back(std::span<const Submission> submissions, std::size_t begun) noexcept REQUIRES(mutex_);
  void break_up_plans(std::uint32_t set) REQUIRES(mutex_);
  void count(Tensor& tensor, std::vector<FilledPlan>& filled) REQUIRES(mutex_);
  void commit(const PlanComplete& complete) noexcept REQUIRES(mutex_);
  bool is_packed(const Plan& plan) const REQUIRES(mutex_);
  std::map<Key, BucketPlace> layout(const Plan& plan, PlanId id) const REQUIRES(mutex_);
  void break_up(Plan& plan, std::vector<Event>& events) REQUIRES(mutex_);
  Item item(Key key) const REQUIRES(mutex_);
  void hurry() noexcept REQUIRES(mutex_);
  bool needs_wake() noexcept REQUIRES(mutex_);

  const Config config_;
  const Registry& registry_;
  mutable Mutex mutex_;
  KnownSets sets_ GUARDED_BY(mutex_);
  std::deque<Tensor> tensors_ GUARDED_BY(mutex_);  // by key; a deque, so that specs stay where they are
  std::vector<Key> free_keys_ GUARDED_BY(mutex_);  // of once-tensors that are over; has room for all of them
  Names names_ GUARDED_BY(mutex_);
  std::map<NameKey, std::uint64_t> unnamed_ GUARDED_BY(mutex_);  // how many there were of each sort
  std::map<PlanId, Plan> plans_ GUARDED_BY(mutex_);
  std::uint64_t plans_version_ GUARDED_BY(mutex_) = 0;
  std::vector<Key> declared_ GUARDED_BY(mutex_);  // not yet told to the engine
  std::vector<Event> events_ GUARDED_BY(mutex_);
  // Of the tensors that were put into events_ by their own submit: not of those in complete or broken plans, for which
  // the engine is in a hurry anyway.
  std::size_t gathered_bytes_ GUARDED_BY(mutex_) = 0;
  std::size_t in_flight_ GUARDED_BY(mutex_) = 0;  // tensors with a work
  FailurePtr closed_ GUARDED_BY(mutex_);
  bool in_hurry_ GUARDED_BY(mutex_) = false;  // somebody waits for what is in events_
  CondVar hurried_;
  bool resting_ GUARDED_BY(mutex_) = true;  // the engine sleeps, and nobody has woken it
};

}  // namespace horo
