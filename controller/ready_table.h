// ReadyTable: who has what ready, since when, and what each said of it. The leader's. An entry is one name; it gathers
// one instance at a time, from the first rank's report until finish().
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "controller/messages.h"
#include "controller/rank_set.h"
#include "controller/stall_clock.h"
#include "controller/texts.h"

namespace horo {

// What some ranks say of a name, all of them alike.
struct Version {
  TensorSpec spec;  // stepwise only if all say so
  std::optional<TensorId> id;
  RankSet ranks;         // that reported it so, of this instance
  bool in_step = false;  // among the tensors of the step that goes on
};

struct Entry {
  TensorName name;
  std::vector<Version> versions;          // those with an id in front: they outlive the instance
  RankSet needs;                          // ranks that this instance is for, as those that reported it say
  RankSet ready;                          // of those, reported
  RankSet absent;                         // of those ready
  std::vector<TimePoint> since;           // by rank: when it was last ready there; min(): never
  std::vector<TimePoint> complete_since;  // the same of the last time that all that it needs had it; empty: never
  bool named = false;                     // somebody reported this instance by name
  PlanId plan = 0;                        // the live plan that it is in, or 0
  std::uint64_t apart_until = 0;          // no plan takes it at the ends of its set's steps up to this one
  std::optional<StallTimer> stall_timer;
  bool held = false;  // complete, and waits for the others of its unit
  // Once it is complete: among all that became so, and how urgent it is, or its unit.
  std::uint64_t turn = 0;
  std::int32_t priority = 0;
};

// Diagnose a report belongs.
struct VersionRef {
  Entry* entry = nullptr;
  std::size_t version = 0;
};

class ReadyTable {
 public:
  // max_ids: names and specs that are remembered at most.
  ReadyTable(int size, std::size_t max_ids) : size_(size), max_ids_(max_ids) {}

  // Makes the entry and the version if they are new.
  VersionRef find_or_add(const TensorSpec& spec);
  // Nothing for an id that was never given; no entry for one of a set that was forgotten. Entries with an id stay where
  // they are until then.
  std::optional<VersionRef> version_of(TensorId id) const;
  // Null if there is none.
  Entry* find(const TensorName& name);
  // Those of a set or, with a unit, those whose spec of this instance is of it; by name.
  std::vector<Entry*> of_set(std::uint32_t set);
  std::vector<Entry*> of_unit(const TensorName& unit);

  // Throws ProtocolError if the rank has it ready already: it may submit a tensor again only when it is over.
  void mark(VersionRef ref, int rank, bool absent, TimePoint now);

  // Whether these ranks beside those ready are all that it needs.
  static bool complete(const Entry& entry, const RankSet* excused);
  // The one version of all that reported it, or null where they disagree.
  static Version* agreed(Entry& entry);
  static std::vector<SpecReport> reports(const Entry& entry);
  // Somebody submitted it without a name.
  static bool is_once(const Entry& entry);
  // Those that it is of, as those that reported it say; a unit's name is in place of a tensor's.
  static std::set<TensorName> units(const Entry& entry);

  // How to call the agreed version from now on; gives it an id if it may have one.
  TensorRef refer(Entry& entry, Version& version);

  // The instance is over. Forgets the entry unless it has an id.
  void finish(Entry& entry);
  // Also its ids, which are never given again.
  void forget_set(std::uint32_t set);

  const std::map<TensorName, Entry>& entries() const { return entries_; }

 private:
  const int size_;
  const std::size_t max_ids_;
  std::map<TensorName, Entry> entries_;
  std::vector<VersionRef> by_id_;
};

}  // namespace horo
