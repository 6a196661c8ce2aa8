// Member: every rank's half of the coordinator. Holds this rank's keys, collects reports for the leader, and turns the
// leader's stream into actions for the engine. It receives the whole stream, and ignores items of sets of which this
// rank is no member.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "controller/messages.h"
#include "controller/set_table.h"

namespace horo {

class Member {
 public:
  explicit Member(const CoordinatorConfig& config)
      : config_(config), sets_(config.size), owes_report_(config.elastic) {}
  // For a rank that joins a running job, with its process sets.
  Member(const CoordinatorConfig& config, SetTable sets)
      : config_(config), sets_(std::move(sets)), owes_report_(config.elastic) {}
  // For the epoch after that of `before`: keeps its process sets, and the failures that this rank has not met.
  Member(const CoordinatorConfig& config, const Member& before, const std::vector<int>& rank_of)
      : config_(config),
        sets_(before.sets_.in_next_epoch(config.size, rank_of)),
        owes_report_(config.elastic),
        owed_(before.owed_) {}

  void declare(Key key, const TensorSpec& spec);
  void undeclare(Key key);

  // ---- Events of this rank.
  void on(const Submitted& event, TimePoint now, Actions& actions);
  void on(const PlanComplete& event, TimePoint now, Actions& actions);
  void on(const PlanActive& event);
  void on(const StepEnded& event);
  void on(const Diagnosed& event);
  void on(const Done& event);
  void on(const OwnFigures& event) { queued_figures_ = event; }
  void on(const RoundBegun& event, TimePoint now);
  void on(const RoundFailed& event, TimePoint now);
  // The leader has left: all pending tensors fail, and later submissions fail at once.
  void leader_left(Actions& actions);

  // The reports to the leader since the last call: one message, or none. Several where a round failed, or began
  // when reports of the round before it were not yet taken.
  std::vector<UpMessage> take_reports(TimePoint now);

  // ---- The leader's stream. Throws ProtocolError if an item refers to a tensor that this rank has not submitted.
  void apply(const DownMessage& message, Actions& actions);

  const SetTable& sets() const { return sets_; }
  // See Coordinator (member_effects.cc).
  StreamEffects effects() const;
  void catch_up(std::uint64_t number, std::span<const std::byte> effect, Actions& actions);

  // This rank's ready times of the tensors that became ready at from(their set) or later.
  std::vector<ReadyTime> ready_times(const std::function<TimePoint(std::uint32_t)>& from) const;

 private:
  struct Tensor {
    TensorSpec spec;
    std::optional<TensorId> id;
    PlanId plan = 0;         // the live plan that contains it, or 0
    std::uint32_t slot = 0;  // its position in the plan
    bool pending = false;    // submitted alone, and neither released, skipped nor failed
    bool queued = false;     // pending, and not yet reported to the leader
    bool absent = false;     // pending without a value
    bool lost = false;       // pending, and cannot run in this epoch
    bool alone = false;      // pending, without its unit
    TimePoint since = TimePoint::min();
  };
  // A tensor id of the stream.
  struct KnownId {
    bool given = false;
    std::uint32_t set = 0;
    std::optional<Key> key;  // that used the id last; nullopt if this rank has no such tensor
  };
  struct KnownPlan {
    std::uint32_t set = 0;
    std::size_t tensors = 0;
    std::vector<Key> keys;  // empty if this rank is no member of the set
    std::uint64_t key_hash = 0;
    bool live = true;
    bool complete = false;    // submitted as a whole, and not yet released
    bool queued = false;      // complete, and not yet reported to the leader
    std::vector<Key> absent;  // complete without a value
    TimePoint since = TimePoint::min();
  };

  Tensor& tensor(Key key);
  KnownPlan& plan(PlanId id);
  KnownPlan& live_plan(PlanId id, const char* what);
  void take(const Submitted& event, TimePoint now, Actions& actions);
  struct Refusal {
    std::string text;  // empty: none
    bool lost = false;
  };
  Refusal refusal_of(const TensorSpec& spec);
  void submit(Key key, const Submitted& event, TimePoint now);
  void fail(Key key, std::string text, Actions& actions, bool lost = false);
  void split(KnownPlan& plan);
  UpMessage collect(TimePoint now);
  bool has_queued(const RoundStream& stream);
  bool is_of(const RoundStream& stream, Key key) const;
  bool is_pending(Key key);
  std::optional<Key> pending_key(const TensorName& name);
  Key pending_key(const TensorRef& ref, const char* what);
  Key plannable_key(TensorId id, PlanId plan);
  void finish(Key key);
  void erase(Key key);
  void forget(TensorId id);
  std::uint32_t set_of(const TensorRef& ref);
  bool takes_part(const std::vector<int>& ranks, const TensorRef& ref);
  bool is_member(std::uint32_t set) const;
  bool has_submitted(std::uint32_t set) const;
  KnownId& known_id(TensorId id);
  std::string of_set(std::uint32_t set) const;
  std::uint64_t hash_of(const std::vector<Key>& keys) const;
  std::string describe_ref(const TensorRef& ref) const;
  std::vector<Awaited> unreleased(const std::vector<Key>& keys) const;

  void apply(const ReleaseTensors& item, Actions& actions);
  void apply(const SkipTensors& item, Actions& actions);
  void apply(const ReleasePlan& item, Actions& actions);
  void apply(const DefinePlan& item, Actions& actions);
  void apply(const DissolvePlan& item, Actions& actions);
  void apply(const FailTensors& item, Actions& actions);
  void apply(const RequestDiagnosis& item, Actions& actions);
  void apply(const DefineSet& item, Actions& actions);
  void apply(const EndSet& item, Actions& actions);
  void apply(const JoinOver& item, Actions& actions);
  void apply(const ForgetTensors& item, Actions& actions);
  void keep_effects(const DownMessage& message);
  TensorRef with_name(const TensorRef& ref) const;
  SkipTensors skips_of(const ReleasePlan& release) const;
  void count_releases(const ReleasePlan& item);
  void release_with_exceptions(const KnownPlan& plan, const ReleasePlan& item, Actions& actions);
  template <class Item>
  void release(Release release, const Item& item, Actions& actions);

  const CoordinatorConfig config_;
  std::unordered_map<Key, Tensor> tensors_;
  std::map<TensorName, std::vector<Key>> names_;  // several keys if a name was declared again
  std::vector<KnownId> by_id_;
  std::deque<KnownPlan> plans_;  // plan 1 first
  SetTable sets_;
  std::map<std::uint32_t, Key> joins_;  // by set: this rank's join
  std::set<std::uint32_t> plannable_;   // sets with a stepwise release since their last step end
  std::uint64_t releases_ = 0;          // releases so far, of all sets
  std::uint64_t applied_ = 0;           // Down messages applied so far
  bool leader_left_ = false;
  TimePoint sent_;        // of the message that is applied
  bool is_over_ = false;  // a rebuild was released: nothing is reported in this epoch any more
  bool owes_report_;      // the leader waits for the next report, even if it is empty

  StreamEffects effects_;
  std::size_t effect_bytes_ = 0;
  std::vector<Key> queued_;
  std::vector<PlanId> queued_plans_;
  std::vector<PlanId> queued_active_;
  std::vector<Diagnosis> queued_answers_;
  std::optional<OwnFigures> queued_figures_;
  std::vector<std::uint32_t> queued_ended_;
  std::vector<Done> queued_done_;
  std::vector<RoundBegun> queued_rounds_;    // at most one per stream
  std::vector<UpMessage> complete_reports_;  // precede the queued ones
  // Unnamed and lost tensors that failed before this rank submitted them: they fail when it submits them, because every
  // rank must count them. Of a name, the first failure is that of the next instance.
  std::multimap<TensorName, Refusal> owed_;
};

}  // namespace horo
