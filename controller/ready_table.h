// ReadyTable: which ranks have which tensors ready, since when, and with which spec each rank reported them. Part of
// the leader. An entry is one name; it collects one instance at a time, from the first rank's report until finish().
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "controller/messages.h"
#include "controller/rank_set.h"
#include "controller/round_table.h"
#include "controller/stall_clock.h"
#include "controller/texts.h"

namespace horo {

// One spec that ranks reported for a name.
struct Version {
  TensorSpec spec;  // stepwise only if all ranks reported it so
  std::optional<TensorId> id;
  RankSet ranks;           // that reported this instance with this spec
  bool in_step = false;    // it is recorded as a tensor of the current step (step_plans.h)
  std::uint64_t used = 0;  // its last release alone, counted in releases of all tensors
};

struct Entry {
  TensorName name;
  std::vector<Version> versions;          // those with an id first: they outlive the instance
  RankSet needs;                          // ranks that must report this instance, according to the reported specs
  RankSet ready;                          // those of `needs` that have reported it
  RankSet absent;                         // those of `ready` that have no value
  std::vector<TimePoint> since;           // by rank: when it was last ready there; min(): never
  std::vector<TimePoint> complete_since;  // `since` of the last complete instance; empty: there was none
  bool named = false;                     // a rank reported this instance by name
  PlanId plan = 0;                        // the live plan that contains it, or 0
  std::uint64_t apart_until = 0;          // number of the last step of its set whose end may not put it into a plan
  std::optional<StallTimer> stall_timer;  // runs while the instance is incomplete or held
  bool held = false;                      // complete, and waits for the other tensors of its unit
  // Set when it is complete and queued for release.
  std::uint64_t turn = 0;      // its position among all tensors that became complete
  std::int32_t priority = 0;   // its own or that of its unit
  InstanceRounds rounds = {};  // in which the ranks of `ready` reported it
};

// A version of an entry, to which a report refers.
struct VersionRef {
  Entry* entry = nullptr;
  std::size_t version = 0;
};

class ReadyTable {
 public:
  // Specs of one name that have an id. A name whose spec changes with every call would make each lookup longer.
  static constexpr std::size_t kMostSpecs = 256;

  // max_ids: greatest number of ids, that is of (name, spec) pairs that are kept after their instance.
  ReadyTable(int size, std::size_t max_ids) : size_(size), max_ids_(max_ids) {}

  // The version with this spec; adds the entry and the version if they do not exist.
  VersionRef find_or_add(const TensorSpec& spec);
  // The version with this id; nullopt if the id was never given; a null entry if it, or its set, was forgotten. The
  // entry of an id does not move before that.
  std::optional<VersionRef> version_of(TensorId id) const;
  // The entry of this name; null if there is none.
  Entry* find(const TensorName& name);
  // The entries of a set, by name.
  std::vector<Entry*> of_set(std::uint32_t set);
  // The entries of which a spec that was reported for this instance names the unit, by name.
  std::vector<Entry*> of_unit(const TensorName& unit);

  // Records a report. Throws ProtocolError if the rank has reported this instance before.
  void mark(VersionRef ref, int rank, bool absent, TimePoint now);

  // Deletes the rank's report of this instance.
  static void unmark(Entry& entry, int rank);

  // True if every rank that the instance needs is ready or in `excused` (which may be null).
  static bool complete(const Entry& entry, const RankSet* excused);
  // The one version that all reports are of; null if ranks disagree.
  static Version* agreed(Entry& entry);
  // The reported specs of this instance, with their ranks.
  static std::vector<SpecReport> reports(const Entry& entry);
  // True if a rank submitted it without a name.
  static bool is_once(const Entry& entry);
  // The units that the reported specs name; a unit's name is in place of a tensor's.
  static std::set<TensorName> units(const Entry& entry);

  // How the stream refers to the agreed version; gives it an id if it has none and may have one.
  TensorRef refer(Entry& entry, Version& version);

  // Ends the instance. Deletes the entry if it has no id.
  void finish(Entry& entry);
  // Deletes the entries of the set. Their ids stay in use until they are forgotten.
  void forget_set(std::uint32_t set);

  // The number of ids in use.
  std::size_t ids() const { return by_id_.size() - free_ids_.size(); }
  // Ids that may be forgotten, at most this many and none of `except`, ascending: those of removed sets first, then
  // those that were released least recently. Looks at all ids.
  std::vector<TensorId> least_used(std::size_t most, const std::set<TensorId>& except) const;
  // Deletes the version with this id, and returns its spec; nullopt if its set was removed. The id stays in use until
  // reuse(), which permits to give it again.
  std::optional<TensorSpec> forget(TensorId id);
  void reuse(TensorId id) { free_ids_.push_back(id); }

  const std::map<TensorName, Entry>& entries() const { return entries_; }

 private:
  TensorId next_id();

  const int size_;
  const std::size_t max_ids_;
  std::uint64_t releases_ = 0;  // of single tensors
  std::map<TensorName, Entry> entries_;
  std::vector<VersionRef> by_id_;
  std::vector<TensorId> free_ids_;  // the next one last
};

}  // namespace horo
