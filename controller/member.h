// Member: every rank's half of the coordinator. Knows this rank's keys; gathers reports for the leader and turns the
// leader's stream into actions for the hall. It hears the whole stream, and skips what is of sets of which this rank is
// no member.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "controller/messages.h"
#include "controller/set_table.h"

namespace horo {

class Member {
 public:
  explicit Member(const CoordinatorConfig& config) : config_(config), sets_(config.size) {}

  void declare(Key key, const TensorSpec& spec);

  // ---- What happened here.
  void on(const Submitted& event, TimePoint now, Actions& actions);
  void on(const PlanComplete& event, TimePoint now, Actions& actions);
  void on(const PlanActive& event);
  void on(const StepEnded& event);
  void on(const Diagnosed& event);
  void on(const Done& event);
  // The leader is gone: what is pending fails, and what comes later does at once.
  void leader_left(Actions& actions);

  // What gathered since the last call, for the leader; nothing if that is nothing.
  std::optional<UpMessage> take_report();

  // ---- What the leader says. Throws ProtocolError if it speaks of what this rank has not submitted.
  void apply(const DownMessage& message, Actions& actions);

  // Of what was ready at the earliest at the time that belongs to its set.
  std::vector<ReadyTime> ready_times(const std::function<TimePoint(std::uint32_t)>& from) const;

 private:
  struct Tensor {
    TensorSpec spec;
    std::optional<TensorId> id;
    PlanId plan = 0;         // the live plan that it is in, or 0
    std::uint32_t slot = 0;  // its position there
    bool pending = false;    // submitted alone, and not yet over
    bool queued = false;     // pending, and the leader has not been told
    bool absent = false;     // of what is pending
    TimePoint since = TimePoint::min();
  };
  // A number of the stream.
  struct KnownId {
    std::uint32_t set = 0;
    std::optional<Key> key;  // that used it last; nothing for what is not this rank's
  };
  struct KnownPlan {
    std::uint32_t set = 0;
    std::size_t tensors = 0;
    std::vector<Key> keys;  // none where this rank is no member
    std::uint64_t key_hash = 0;
    bool live = true;
    bool complete = false;    // submitted as a whole, and not yet over
    bool queued = false;      // complete, and the leader has not been told
    std::vector<Key> absent;  // of what is complete
    TimePoint since = TimePoint::min();
  };

  Tensor& tensor(Key key);
  KnownPlan& plan(PlanId id);
  KnownPlan& told_plan(PlanId id, const char* what);
  void take(Key key, bool absent, TimePoint now, Actions& actions);
  std::string refusal(const TensorSpec& spec);
  void submit(Key key, bool absent, TimePoint now);
  void fail(Key key, std::string text, Actions& actions);
  void spread(KnownPlan& plan);
  bool pends(Key key);
  std::optional<Key> pending_key(const TensorName& name);
  Key pending_key(const TensorRef& ref, const char* what);
  Key plannable_key(TensorId id, PlanId plan);
  void settle(Key key);
  std::uint32_t set_of(const TensorRef& ref);
  bool concerns(const std::vector<int>& ranks, const TensorRef& ref);
  bool is_member(std::uint32_t set) const;
  KnownId& known_id(TensorId id);
  std::string of_set(std::uint32_t set) const;
  std::uint64_t hash_of(const std::vector<Key>& keys) const;
  std::string describe_ref(const TensorRef& ref) const;

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
  void pass_over(const ReleasePlan& item);
  void release_absent(const KnownPlan& plan, const ReleasePlan& item, Actions& actions);
  void release(Release release, bool reports_done, Actions& actions);

  const CoordinatorConfig config_;
  std::unordered_map<Key, Tensor> tensors_;
  std::map<TensorName, std::vector<Key>> names_;  // several keys where a name was declared anew
  std::vector<KnownId> by_id_;
  std::deque<KnownPlan> plans_;  // plan 1 first
  SetTable sets_;
  std::map<std::uint32_t, Key> joins_;  // by set, where this rank has joined
  std::set<std::uint32_t> plannable_;  // sets in which this rank has seen, since their last step end, what plans are of
  std::uint64_t releases_ = 0;         // of all sets
  std::uint64_t applied_ = 0;          // Down messages
  bool leader_left_ = false;

  std::vector<Key> queued_;
  std::vector<PlanId> queued_plans_;
  std::vector<PlanId> queued_active_;
  std::vector<Diagnosis> queued_answers_;
  std::vector<std::uint32_t> queued_ended_;
  std::vector<Done> queued_done_;
  // Unnamed tensors that failed before this rank submitted them, and why: they fail when it does, because every rank
  // has to count them.
  std::map<TensorName, std::string> owed_;
};

}  // namespace horo
