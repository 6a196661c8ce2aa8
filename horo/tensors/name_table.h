// NameTable: the declared tensors of a session, by key and by name. It stores which names are in flight and counts
// unnamed calls.
//
// Keys are reference-counted: a declaration adds a reference, undeclare() removes one. Keys without a reference, of
// tensors that were submitted by spec or are not declared any more, may be freed while they are not in flight: where
// there are more than Config::kept_tensors of them, those that ended least recently are. The leader forgets ids by
// itself (controller/forgetting.h). A freed tensor that is submitted again gets a key like a new one. A stepwise tensor
// keeps its key, because a known plan may come to hold it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "horo/base/config.h"
#include "horo/tensors/item.h"
#include "horo/tensors/known_sets.h"
#include "horo/tensors/submission_batch.h"

namespace horo {

struct TrackedPlan;

// All specs that were declared under one name of a process set and channel. At most one of them is in flight.
struct NameEntry {
  std::vector<Key> keys;
  bool in_flight = false;
};
using ScopedName = std::tuple<std::uint32_t, std::uint32_t, std::string>;  // process set, channel, name
using NameMap = std::map<ScopedName, NameEntry>;

// Which unnamed calls are counted together: "all_reduce"; of messages those between two ranks, by numbers in the set.
struct UnnamedKind {
  std::uint32_t set = 0;
  std::uint32_t channel = 0;
  std::string kind;
  int root = -1;  // of messages, and so is peer
  int peer = -1;
  bool is_of_message() const { return root >= 0; }
  auto operator<=>(const UnnamedKind&) const = default;
};

struct TensorRecord {           // begins with the members that every submission reads
  NameEntry* name = nullptr;    // in the name map, whose nodes are stable; null: the key is not in use
  TrackedPlan* plan = nullptr;  // the active plan of the tensor, or null
  PlanId plan_id = 0;
  std::uint32_t set = 0;       // of the spec
  bool reported = false;       // the engine has, or will take, an event for the submission in flight
  bool plain = false;          // an all_reduce: a submission with in and out and no other field is valid
  bool taken = false;          // the engine knows it
  bool lost = false;           // the submission in flight names ranks of an earlier epoch that are others now
  Item item;                   // in flight if its work is not null
  std::uint64_t serial = 0;    // of the submission in flight; they rise in the order of submission
  std::uint64_t used = 0;      // when it ended last, counted in ends of all tensors
  std::uint64_t declared = 0;  // times that it was declared, less those that it was undeclared
  NameMap::iterator place = {};
  TensorSpec spec;

  bool is_in_flight() const { return item.work != nullptr; }
  // Freed once there are too many such tensors.
  bool is_kept() const { return name != nullptr && declared == 0 && !spec.once && !spec.stepwise; }
};

// add_set, remove_set, join and rebuild: agreed on like a tensor, but move no data.
bool is_request(CollectiveKind kind);

// Has no lock of its own: the tensor table calls it under its mutex.
class NameTable {
 public:
  // Specs of one name that keep their keys without being declared: each lookup compares all specs of the name.
  static constexpr std::size_t kMostSpecs = 256;

  explicit NameTable(const Config& config) : config_(config), next_kept_(config.kept_tensors) {}

  bool has(Key key) const { return key < records_.size() && records_[key].name != nullptr; }
  TensorRecord& at(Key key) { return records_[key]; }
  const TensorRecord& at(Key key) const { return records_[key]; }
  std::deque<TensorRecord>& records() { return records_; }
  const std::deque<TensorRecord>& records() const { return records_; }

  // A spec with its final name. counter: the counter of unnamed calls that the name was taken from, or null; the caller
  // increments it once the call succeeds.
  struct Resolved {
    TensorSpec spec;
    std::uint64_t* counter = nullptr;
  };
  // Clears the fields that this rank does not read, so that they do not make two specs different. An empty name is
  // replaced by the kind and its counter: "all_reduce#7". The name of a send_recv gets its ranks: "x (0 to 1)". Throws
  // std::invalid_argument for a name that is too long. lost: the ranks are those of an earlier epoch. Such a message
  // fails on this rank alone, so it does not count among those of two ranks of now.
  Resolved resolve(const TensorSpec& spec, const SetInfo& set, bool lost);
  // Calls of this kind that had no name so far; no messages.
  std::uint64_t& unnamed_calls(const TensorSpec& spec, const std::string& kind);
  // The unnamed calls of the set are numbered from 0 again.
  void reset_unnamed(std::uint32_t set);
  // Of the world, by channel and kind: how many unnamed calls are over, the border's among them. Those in flight are
  // the last ones of a rank. Messages are left out: which pairs of ranks there are differs between ranks.
  std::map<std::pair<std::uint32_t, std::string>, std::uint64_t> unnamed_of_world(Key border) const;
  // The ranks of the set have other numbers. numbers: by those until now; -1: lost. Messages in flight that name other
  // ranks by that are lost, on each of the two ranks that has submitted them, and count on none.
  void renumber_messages(std::uint32_t set, const std::vector<int>& numbers);
  void set_unnamed_of_world(const std::map<std::pair<std::uint32_t, std::string>, std::uint64_t>& calls);
  // The set was removed: frees its keys that no caller holds, except for those in flight.
  void forget_set(std::uint32_t set);

  // Frees keys if there are too many, or no room for that many more tensors. Precedes the find_or_add() of a call.
  void make_room(std::size_t tensors);
  // Throws std::invalid_argument if that many more tensors exceed Config::max_tensors.
  void check_capacity(std::size_t tensors) const;
  bool is_in_flight(const TensorSpec& spec) const;
  // The key of an equal spec, or a new one. A new record is complete or not added at all (std::bad_alloc).
  Key find_or_add(const TensorSpec& spec);
  // A caller holds the key from now on. Does nothing to a once-tensor, whose key ends with it.
  void declare(Key key);
  // A caller that declared the key holds it no more.
  void undeclare(Key key);

  // The submission of this record has ended. The key of a once-tensor is free for another declaration.
  void retire(TensorRecord& record) noexcept;

  // The engine of the next epoch knows no tensor.
  void begin_epoch();
  // The engine has not taken this key, and need not learn it.
  void skip(Key key) noexcept { std::erase(declared_, key); }

  // What the engine has to learn: the keys that were freed and the specs that were declared since the last call, in
  // this order.
  void take_changes(SubmissionBatch& batch);

 private:
  Key add(const TensorSpec& spec, NameMap::iterator place);
  std::size_t size() const { return records_.size() - free_keys_.size(); }
  void free_least_used();
  void free_of_name(NameEntry& name);
  void free(Key key) noexcept;
  // Of so many unnamed calls of this kind, those that are over. Those in flight are the last ones; `border` is over.
  std::uint64_t over_of(const UnnamedKind& kind, std::uint64_t count, std::optional<Key> border) const;
  bool is_in_flight(const UnnamedKind& kind, std::uint64_t number, std::optional<Key> border) const;

  const Config& config_;
  std::deque<TensorRecord> records_;  // by key; a deque, so that specs have stable addresses
  std::vector<Key> free_keys_;        // not in use; has capacity for all keys
  std::uint64_t ends_ = 0;            // of tensors
  std::size_t kept_ = 0;              // tensors of which is_kept() is true
  std::size_t next_kept_;             // tensors above which some are freed the next time
  NameMap names_;
  std::map<UnnamedKind, std::uint64_t> unnamed_;  // number of unnamed calls of each kind
  std::vector<Key> declared_;                     // not yet taken by the engine
  std::vector<Key> undeclared_;                   // freed, and not yet taken by the engine
};

}  // namespace horo
