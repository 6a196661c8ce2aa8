// NameTable: the declared tensors of a session, by key and by name. It stores which names are in flight and counts
// unnamed calls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "horo/base/config.h"
#include "horo/tensors/item.h"
#include "horo/tensors/known_sets.h"

namespace horo {

struct TrackedPlan;

// All specs that were declared under one name of a process set and channel. At most one of them is in flight.
struct NameEntry {
  std::vector<Key> keys;
  bool in_flight = false;
};
using ScopedName = std::tuple<std::uint32_t, std::uint32_t, std::string>;  // process set, channel, name
using NameMap = std::map<ScopedName, NameEntry>;

struct TensorRecord {           // begins with the members that every submission reads
  NameEntry* name = nullptr;    // in the name map, whose nodes are stable; null: the key is not in use
  TrackedPlan* plan = nullptr;  // the active plan of the tensor, or null
  PlanId plan_id = 0;
  std::uint32_t set = 0;  // of the spec
  bool reported = false;  // the engine has, or will take, an event for the submission in flight
  bool plain = false;     // an all_reduce: a submission with in and out and no other field is valid
  Item item;              // in flight if its work is not null
  NameMap::iterator place = {};
  TensorSpec spec;

  bool is_in_flight() const { return item.work != nullptr; }
};

bool is_request(CollectiveKind kind);  // add_set, remove_set and join: agreed on like a tensor, but move no data

// Has no lock of its own: the tensor table calls it under its mutex.
class NameTable {
 public:
  explicit NameTable(const Config& config) : config_(config) {}

  bool has(Key key) const { return key < records_.size() && records_[key].name != nullptr; }
  TensorRecord& at(Key key) { return records_[key]; }
  const TensorRecord& at(Key key) const { return records_[key]; }
  std::deque<TensorRecord>& records() { return records_; }

  // A spec with its final name. counter: the counter of unnamed calls that the name was taken from, or null; the caller
  // increments it once the call succeeds.
  struct Resolved {
    TensorSpec spec;
    std::uint64_t* counter = nullptr;
  };
  // Clears the fields that this rank does not read, so that they do not make two specs different. An empty name is
  // replaced by the kind and its counter: "all_reduce#7". The name of a send_recv gets its ranks: "x (0 to 1)". Throws
  // std::invalid_argument for a name that is too long.
  Resolved resolve(const TensorSpec& spec, const SetInfo& set);
  // Calls of this kind that had no name so far.
  std::uint64_t& unnamed_calls(const TensorSpec& spec, const std::string& kind);
  // The unnamed calls of the set are numbered from 0 again.
  void reset_unnamed(std::uint32_t set);

  // Throws std::invalid_argument if that many more tensors exceed Config::max_tensors.
  void check_capacity(std::size_t tensors, bool once) const;
  bool is_in_flight(const TensorSpec& spec) const;
  // The key of an equal spec, or a new one. A new record is complete or not added at all (std::bad_alloc).
  Key find_or_add(const TensorSpec& spec);

  // The submission of this record has ended. The key of a once-tensor is free for another declaration.
  void retire(TensorRecord& record) noexcept;

  // Specs declared since the last call.
  std::vector<std::pair<Key, const TensorSpec*>> take_declared();

 private:
  Key add(const TensorSpec& spec, NameMap::iterator place);

  const Config& config_;
  std::deque<TensorRecord> records_;  // by key; a deque, so that specs have stable addresses
  std::vector<Key> free_keys_;        // of once-tensors that have ended; has capacity for all of them
  NameMap names_;
  std::map<ScopedName, std::uint64_t> unnamed_;  // number of unnamed calls of each kind
  std::vector<Key> declared_;                    // not yet taken by the engine
};

}  // namespace horo
