// EngineModel: one rank's coordinator in a small model of the engine, which fulfils the engine's side of the contract:
// keys and plans, one instance of a tensor in flight, plan reports, nudges, breaks, and activation of plans at step
// ends.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "controller/coordinator.h"

namespace horo {

// A release or skip on one rank; equal on all participating ranks.
struct Seen {
  bool skipped = false;
  std::uint32_t set = 0;
  std::uint64_t number = 0;
  std::vector<std::string> names;
  std::uint64_t key_hash = 0;
  std::vector<int> absent_ranks;
  bool known = false;
  std::vector<int> ranks;
  bool operator==(const Seen&) const = default;
};

struct TensorFailure {
  std::string name;
  std::string text;
  bool operator==(const TensorFailure&) const = default;
};

class EngineModel {
 public:
  explicit EngineModel(const CoordinatorConfig& config);

  // ---- The caller's side.
  void submit(const TensorSpec& spec, bool absent = false, bool alone = false);
  // True if the engine would accept it: this rank is in the set and has not joined it; of a send_recv, it is one of the
  // two ranks.
  bool takes(const TensorSpec& spec) const;
  void nudge();  // the caller waits for everything that it has submitted
  void add_set(std::vector<int> ranks, const std::string& name = "");
  void remove_set(std::uint32_t set);
  // The members of the set alone make these calls.
  void add_set_by_members(std::vector<int> ranks, const std::string& name, bool shrinks = false);
  void remove_set_by_members(std::uint32_t set, const std::string& name);
  void join(std::uint32_t set = 0);
  void step_end(std::uint32_t set = 0);
  void begin_round(const RoundStream& stream, const RoundNumber& round);
  void fail_round(const RoundStream& stream, const std::string& reason);
  bool idle() const { return in_flight_ == 0; }
  // Of the tensors that end and are neither once nor stepwise, each n-th is undeclared; 0: none.
  void undeclare_every(std::uint64_t n) { undeclare_every_ = n; }
  // The answer to a Diagnose; nullopt: this rank never answers. Initially empty, as of a program without Python.
  void set_call_sites(std::optional<std::string> text) { call_sites_ = std::move(text); }
  // Each thread of this rank waits for these tensors, and nothing has changed since then. Of no threads: one of them
  // does not wait.
  void set_waits(TimePoint since, std::vector<std::vector<TensorSpec>> threads) {
    waiting_since_ = since;
    waits_ = std::move(threads);
  }
  // The one caller waits for everything that it has submitted.
  void begin_wait(TimePoint now) { waiting_for_all_since_ = waiting_for_all_since_.value_or(now); }
  void end_wait() { waiting_for_all_since_.reset(); }

  // ---- The engine's side.
  void post(Event event);
  bool has_events() const { return !events_.empty(); }
  struct Turn {
    std::vector<Send> sends;
    std::vector<TimePoint> timers;
    std::size_t started = 0;  // collectives, skips and failures, for finish_one()
  };
  Turn turn(TimePoint now);
  // The oldest of those has finished: its tensors may be submitted again, and Done is reported if requested.
  void finish_one();

  Coordinator& coordinator() { return coordinator_; }
  const std::vector<Seen>& stream() const { return stream_; }
  // The world ranks of the sets that exist, the world included.
  const std::map<std::uint32_t, std::vector<int>>& sets() const { return sets_; }
  // Those of all sets that ever existed.
  const std::map<std::uint32_t, std::vector<int>>& all_sets() const { return all_sets_; }
  // The set that got this name last; none: UINT32_MAX.
  std::uint32_t set_named(const std::string& name) const {
    const auto found = set_names_.find(name);
    return found == set_names_.end() ? UINT32_MAX : found->second;
  }
  const std::vector<Joined>& joins() const { return joins_; }
  const std::vector<TensorFailure>& failures() const { return failures_; }
  const std::vector<std::string>& warnings() const { return warnings_; }
  const std::vector<OtherFigures>& figures() const { return figures_; }
  const std::vector<Explain>& explanations() const { return explanations_; }
  // How often the tensor was released or skipped.
  int times(const std::string& name) const;
  std::string in_flight() const;

 private:
  struct Tensor {
    TensorSpec spec;
    bool in_flight = false;
    bool reported = false;
    bool absent = false;
    bool alone = false;
    PlanId plan = 0;  // active
  };
  struct Plan {
    std::vector<Key> keys;
    std::size_t waiting = 0;
    bool active = false;
    bool broken = false;
  };

  static TensorSpec of_members(CollectiveKind kind, const std::string& name);
  Key key_of(const TensorSpec& spec);
  CallerWaits waits(TimePoint now) const;
  void report(Key key);
  void forget(Key key);
  void break_up(Plan& plan);
  void report_stream(const RoundStream& stream);
  void act(const Release& release);
  void act(const Skip& skip);
  void act(const AddSet& add);
  void act(const RemoveSet& remove);
  void act(const Joined& joined);
  void act(const Fail& fail);
  void act(const Learn& learn);
  void act(const Break& end);
  std::vector<std::string> names_of(const std::vector<Key>& keys) const;

  const int rank_;
  Coordinator coordinator_;
  std::map<Key, Tensor> tensors_;
  std::map<std::pair<std::uint32_t, std::string>, std::vector<Key>> keys_;  // by set and name
  std::map<std::uint32_t, std::vector<int>> sets_, all_sets_;
  std::map<std::string, std::uint32_t> set_names_;
  std::set<std::uint32_t> joined_;  // sets that this rank has joined, until all members have
  std::vector<Joined> joins_;
  int calls_ = 0;  // of add_set and remove_set
  std::map<PlanId, Plan> plans_;
  std::uint64_t undeclare_every_ = 0;
  std::uint64_t finished_ = 0;   // instances of tensors that may be undeclared
  std::vector<Key> undeclared_;  // precede declared_
  std::vector<Key> declared_;
  std::vector<Event> events_;
  struct Running {
    std::vector<Key> keys;
    std::uint32_t set = 0;
    bool reports_done = false;
  };
  std::deque<Running> running_;
  std::size_t in_flight_ = 0;
  Key next_key_ = 0;
  std::vector<Seen> stream_;
  std::vector<TensorFailure> failures_;
  std::vector<std::string> warnings_;
  std::vector<Explain> explanations_;
  std::vector<OtherFigures> figures_;
  std::optional<std::string> call_sites_ = "";
  std::optional<TimePoint> waiting_for_all_since_;
  TimePoint waiting_since_;
  std::vector<std::vector<TensorSpec>> waits_;
  std::map<std::string, int> times_;
};

}  // namespace horo
