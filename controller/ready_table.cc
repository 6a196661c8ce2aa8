// A name has several versions while ranks disagree, and after it has changed its shape. Within one instance every rank
// that reported is in exactly one version, so ranks agree if one version has all of them.
#include "controller/ready_table.h"

#include <algorithm>
#include <utility>

#include "horo/base/error.h"

namespace horo {

VersionRef ReadyTable::find_or_add(const TensorSpec& spec) {
  const TensorName name = name_of(spec);
  auto found = entries_.find(name);
  if (found == entries_.end()) {
    Entry fresh{name, {}, RankSet(size_), RankSet(size_), RankSet(size_), {}, {}, false, 0, 0, {}, false, 0, 0};
    fresh.since.assign(static_cast<std::size_t>(size_), TimePoint::min());
    found = entries_.emplace(name, std::move(fresh)).first;
  }
  Entry& entry = found->second;
  entry.named = true;
  const auto agrees = [&](const Version& version) { return difference(version.spec, spec).empty(); };
  auto version = std::find_if(entry.versions.begin(), entry.versions.end(), agrees);
  if (version == entry.versions.end()) version = entry.versions.insert(version, {spec, {}, RankSet(size_)});
  version->spec.stepwise = version->spec.stepwise && spec.stepwise;
  return {&entry, static_cast<std::size_t>(version - entry.versions.begin())};
}

std::optional<VersionRef> ReadyTable::version_of(TensorId id) const {
  return id < by_id_.size() ? std::optional(by_id_[id]) : std::nullopt;
}

Entry* ReadyTable::find(const TensorName& name) {
  const auto found = entries_.find(name);
  return found == entries_.end() ? nullptr : &found->second;
}

std::vector<Entry*> ReadyTable::of_set(std::uint32_t set) {
  std::vector<Entry*> entries;
  for (auto at = entries_.lower_bound({set, 0, ""}); at != entries_.end() && at->first.set == set; ++at) {
    entries.push_back(&at->second);
  }
  return entries;
}

std::vector<Entry*> ReadyTable::of_unit(const TensorName& unit) {
  std::vector<Entry*> entries;
  for (Entry* entry : of_set(unit.set)) {
    const auto is_of = [&](const Version& v) { return !v.ranks.empty() && v.spec.unit == unit.name; };
    if (entry->name.channel != unit.channel) continue;
    if (std::any_of(entry->versions.begin(), entry->versions.end(), is_of)) entries.push_back(entry);
  }
  return entries;
}

void ReadyTable::mark(VersionRef ref, int rank, bool absent, TimePoint now) {
  Entry& entry = *ref.entry;
  if (!entry.ready.insert(rank)) {
    throw ProtocolError("rank " + std::to_string(rank) + " reported tensor '" + entry.name.name +
                        "' twice, and the first was not yet released");
  }
  entry.versions[ref.version].ranks.insert(rank);
  if (absent) entry.absent.insert(rank);
  entry.since[static_cast<std::size_t>(rank)] = now;
}

void ReadyTable::unmark(Entry& entry, int rank) {
  entry.ready.erase(rank);
  entry.absent.erase(rank);
  for (Version& version : entry.versions) version.ranks.erase(rank);
  entry.rounds.keep(entry.ready.ranks());
}

bool ReadyTable::complete(const Entry& entry, const RankSet* excused) {
  if (entry.ready.covers(entry.needs)) return true;
  return excused != nullptr && excused->covers(entry.needs.without(entry.ready));
}

Version* ReadyTable::agreed(Entry& entry) {
  const auto all = [&](const Version& version) { return version.ranks.count() == entry.ready.count(); };
  const auto found = std::find_if(entry.versions.begin(), entry.versions.end(), all);
  return found == entry.versions.end() ? nullptr : &*found;
}

std::vector<SpecReport> ReadyTable::reports(const Entry& entry) {
  std::vector<SpecReport> reports;
  for (const Version& version : entry.versions) {
    if (!version.ranks.empty()) reports.push_back({&version.spec, version.ranks.ranks()});
  }
  return reports;
}

bool ReadyTable::is_once(const Entry& entry) {
  return std::any_of(entry.versions.begin(), entry.versions.end(), [](const Version& v) { return v.spec.once; });
}

std::set<TensorName> ReadyTable::units(const Entry& entry) {
  std::set<TensorName> units;
  for (const Version& version : entry.versions) {
    if (version.ranks.empty() || version.spec.unit.empty()) continue;
    units.insert({version.spec.set, version.spec.channel, version.spec.unit});
  }
  return units;
}

TensorRef ReadyTable::refer(Entry& entry, Version& version) {
  const bool may_have_id = !version.spec.once && entry.versions.size() <= kMostSpecs && ids() < max_ids_;
  if (!version.id && may_have_id) {
    version.id = next_id();
    by_id_[*version.id] = {&entry, static_cast<std::size_t>(&version - entry.versions.data())};
  }
  version.used = ++releases_;
  TensorRef ref{{}, version.id};
  if (entry.named) ref.name = entry.name;
  return ref;
}

TensorId ReadyTable::next_id() {
  if (free_ids_.empty()) {
    by_id_.emplace_back();
    return static_cast<TensorId>(by_id_.size() - 1);
  }
  const TensorId id = free_ids_.back();
  free_ids_.pop_back();
  return id;
}

void ReadyTable::finish(Entry& entry) {
  std::erase_if(entry.versions, [](const Version& version) { return !version.id; });
  if (entry.versions.empty()) {
    entries_.erase(TensorName(entry.name));
    return;
  }
  for (Version& version : entry.versions) version.ranks.clear();
  if (entry.ready.covers(entry.needs)) entry.complete_since = entry.since;
  entry.needs.clear();
  entry.ready.clear();
  entry.absent.clear();
  entry.rounds.clear();
  entry.named = entry.held = false;
}

void ReadyTable::forget_set(std::uint32_t set) {
  for (VersionRef& ref : by_id_) {
    if (ref.entry != nullptr && ref.entry->name.set == set) ref.entry = nullptr;
  }
  std::erase_if(entries_, [set](const auto& entry) { return entry.first.set == set; });
}

std::vector<TensorId> ReadyTable::least_used(std::size_t most, const std::set<TensorId>& except) const {
  std::vector<bool> excepted(by_id_.size());
  for (const TensorId id : except) excepted[id] = true;
  for (const TensorId id : free_ids_) excepted[id] = true;
  std::vector<std::pair<std::uint64_t, TensorId>> idle;  // by last use
  for (TensorId id = 0; id < by_id_.size(); ++id) {
    const auto [entry, index] = by_id_[id];
    if (excepted[id]) continue;
    if (entry == nullptr) {
      idle.emplace_back(0, id);
    } else if (entry->ready.empty() && entry->plan == 0 && !entry->versions[index].in_step) {
      idle.emplace_back(entry->versions[index].used, id);
    }
  }
  const auto end = idle.begin() + static_cast<std::ptrdiff_t>(std::min(most, idle.size()));
  std::nth_element(idle.begin(), end, idle.end());
  std::vector<TensorId> ids;
  for (auto one = idle.begin(); one != end; ++one) ids.push_back(one->second);
  std::sort(ids.begin(), ids.end());
  return ids;
}

std::optional<TensorSpec> ReadyTable::forget(TensorId id) {
  const auto [entry, index] = std::exchange(by_id_[id], {});
  if (entry == nullptr) return std::nullopt;
  TensorSpec spec = std::move(entry->versions[index].spec);
  entry->versions.erase(entry->versions.begin() + static_cast<std::ptrdiff_t>(index));
  for (std::size_t later = index; later < entry->versions.size(); ++later) {
    if (entry->versions[later].id) by_id_[*entry->versions[later].id].version = later;
  }
  if (entry->versions.empty()) entries_.erase(TensorName(entry->name));
  return spec;
}

}  // namespace horo
