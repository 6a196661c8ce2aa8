#include "horo/tensors/name_table.h"

#include <algorithm>
#include <optional>
#include <stdexcept>

namespace horo {
namespace {

constexpr const char* kLost = " of an earlier epoch";

// Two pairs of ranks may use one name at once, so the name of a message includes its pair.
std::string pair_of(int root, int peer) {
  return " (" + std::to_string(root) + " to " + std::to_string(peer) + ")";
}

std::string pair_of(const TensorSpec& spec) {
  if (spec.kind != CollectiveKind::kSendRecv) return "";
  return pair_of(spec.root, spec.peer);
}

}  // namespace

bool is_request(CollectiveKind kind) {
  return kind == CollectiveKind::kAddSet || kind == CollectiveKind::kRemoveSet || kind == CollectiveKind::kJoin ||
         kind == CollectiveKind::kRebuild;
}

NameTable::Resolved NameTable::resolve(const TensorSpec& spec, const SetInfo& set, bool lost) {
  Resolved resolved{spec, nullptr};
  TensorSpec& own = resolved.spec;
  if (spec.kind != CollectiveKind::kSendRecv) own.peer = -1;
  if (spec.kind == CollectiveKind::kSendRecv || spec.kind == CollectiveKind::kBarrier) own.priority = 0;
  const bool is_read = spec.kind != CollectiveKind::kScatter || set.rank == spec.root || spec.counts_known;
  if (!is_read) own.shape.front() = 0;
  if (spec.name.empty()) {
    const bool is_message = spec.kind == CollectiveKind::kSendRecv;
    const std::string kind = std::string(name_of(spec.kind)) + (is_message && lost ? kLost : "");
    const int root = is_message ? spec.root : -1, peer = is_message ? spec.peer : -1;
    resolved.counter = &unnamed_[{spec.set, spec.channel, kind, root, peer}];
    own.name = kind + "#" + std::to_string(*resolved.counter);
  }
  own.name += pair_of(spec);
  if (own.name.size() > config_.max_name_bytes) {
    throw std::invalid_argument("the name '" + own.name.substr(0, 200) + "' has " + std::to_string(own.name.size()) +
                                " bytes, at most " + std::to_string(config_.max_name_bytes) +
                                " are allowed (HORO_MAX_NAME_BYTES)");
  }
  return resolved;
}

std::uint64_t& NameTable::unnamed_calls(const TensorSpec& spec, const std::string& kind) {
  return unnamed_[{spec.set, spec.channel, kind}];
}

void NameTable::reset_unnamed(std::uint32_t set) {
  std::erase_if(unnamed_, [set](const auto& entry) { return entry.first.set == set; });
}

// The tensors of a unit are called "unit#0_1of2", a message "send_recv#0 (0 to 1)".
bool NameTable::is_in_flight(const UnnamedKind& kind, std::uint64_t number, std::optional<Key> border) const {
  const std::string pair = kind.is_of_message() ? pair_of(kind.root, kind.peer) : "";
  const std::string name = kind.kind + "#" + std::to_string(number) + pair;
  const auto is_other = [&](Key key) { return key != border && records_[key].is_in_flight(); };
  for (auto at = names_.lower_bound({kind.set, kind.channel, name}); at != names_.end(); ++at) {
    const auto& [set, channel, found] = at->first;
    if (set != kind.set || channel != kind.channel || !found.starts_with(name)) return false;
    const bool is_it = found.size() == name.size() || found[name.size()] == '_';
    if (is_it && std::ranges::any_of(at->second.keys, is_other)) return true;
  }
  return false;
}

std::uint64_t NameTable::over_of(const UnnamedKind& kind, std::uint64_t count, std::optional<Key> border) const {
  while (count > 0 && is_in_flight(kind, count - 1, border)) --count;
  return count;
}

std::map<std::pair<std::uint32_t, std::string>, std::uint64_t> NameTable::unnamed_of_world(Key border) const {
  std::map<std::pair<std::uint32_t, std::string>, std::uint64_t> calls;
  for (const auto& [kind, count] : unnamed_) {
    if (kind.set != 0 || kind.is_of_message()) continue;
    calls.emplace(std::pair(kind.channel, kind.kind), over_of(kind, count, border));
  }
  return calls;
}

void NameTable::renumber_messages(std::uint32_t set, const std::vector<int>& numbers) {
  const auto now = [&](int rank) {
    return static_cast<std::size_t>(rank) < numbers.size() ? numbers[static_cast<std::size_t>(rank)] : -1;
  };
  std::map<UnnamedKind, std::uint64_t> renumbered;
  for (const auto& [kind, count] : unnamed_) {
    if (kind.set != set || !kind.is_of_message()) continue;
    const int root = now(kind.root), peer = now(kind.peer);
    if (root < 0 || peer < 0) continue;
    const bool is_same = root == kind.root && peer == kind.peer;
    renumbered.emplace(UnnamedKind{set, kind.channel, kind.kind, root, peer},
                       is_same ? count : over_of(kind, count, std::nullopt));
  }
  std::erase_if(unnamed_, [set](const auto& one) { return one.first.set == set && one.first.is_of_message(); });
  unnamed_.merge(renumbered);
}

void NameTable::set_unnamed_of_world(const std::map<std::pair<std::uint32_t, std::string>, std::uint64_t>& calls) {
  for (const auto& [kind, count] : calls) unnamed_[{0, kind.first, kind.second}] = count;
}

void NameTable::forget_set(std::uint32_t set) {
  reset_unnamed(set);
  std::vector<Key> idle;
  for (auto at = names_.lower_bound({set, 0, ""}); at != names_.end() && std::get<0>(at->first) == set; ++at) {
    for (const Key key : at->second.keys) {
      if (records_[key].is_kept() && !records_[key].is_in_flight()) idle.push_back(key);
    }
  }
  reserve_more(undeclared_, idle.size());
  for (const Key key : idle) free(key);
}

void NameTable::make_room(std::size_t tensors) {
  const bool is_full = size() + tensors > config_.max_tensors;
  if (kept_ > next_kept_ || (is_full && kept_ > 0)) free_least_used();
}

// Frees an eighth of the kept tensors at once, because it looks at all tensors.
void NameTable::free_least_used() {
  const std::size_t step = std::max<std::size_t>(kept_ / 8, 1);
  std::vector<std::pair<std::uint64_t, Key>> idle;  // by last end
  for (Key key = 0; key < records_.size(); ++key) {
    const TensorRecord& record = records_[key];
    if (record.is_kept() && !record.is_in_flight()) idle.emplace_back(record.used, key);
  }
  const std::size_t over = kept_ - std::min(kept_, config_.kept_tensors);
  const auto end = idle.begin() + static_cast<std::ptrdiff_t>(std::min(over + step, idle.size()));
  std::nth_element(idle.begin(), end, idle.end());
  reserve_more(undeclared_, static_cast<std::size_t>(end - idle.begin()));
  for (auto one = idle.begin(); one != end; ++one) free(one->second);
  next_kept_ = std::max(config_.kept_tensors, kept_ + step);
}

void NameTable::free_of_name(NameEntry& name) {
  std::optional<Key> least;
  for (const Key key : name.keys) {
    const TensorRecord& record = records_[key];
    if (!record.is_kept() || record.is_in_flight()) continue;
    if (!least || record.used < records_[*least].used) least = key;
  }
  if (!least || name.keys.size() < 2) return;
  reserve_more(undeclared_, 1);
  free(*least);
}

// The caller has reserved capacity in undeclared_.
void NameTable::free(Key key) noexcept {
  TensorRecord& record = records_[key];
  std::erase(record.name->keys, key);
  if (record.name->keys.empty()) names_.erase(record.place);
  if (record.taken) {
    undeclared_.push_back(key);
  } else {
    std::erase(declared_, key);
  }
  record = TensorRecord{};
  free_keys_.push_back(key);
  --kept_;
}

void NameTable::check_capacity(std::size_t tensors) const {
  if (size() + tensors <= config_.max_tensors) return;
  throw std::invalid_argument(std::to_string(size()) + " tensors are declared or in flight already, no more are " +
                              "allowed (HORO_MAX_TENSORS)");
}

void NameTable::declare(Key key) {
  TensorRecord& record = records_[key];
  if (record.spec.once) return;
  if (record.is_kept()) --kept_;
  ++record.declared;
}

void NameTable::undeclare(Key key) {
  TensorRecord& record = records_[key];
  if (--record.declared == 0 && record.is_kept()) ++kept_;
}

bool NameTable::is_in_flight(const TensorSpec& spec) const {
  const auto found = names_.find({spec.set, spec.channel, spec.name});
  return found != names_.end() && found->second.in_flight;
}

Key NameTable::find_or_add(const TensorSpec& spec) {
  const ScopedName name{spec.set, spec.channel, spec.name};
  if (const auto found = names_.find(name); found != names_.end()) {
    for (const Key key : found->second.keys) {
      if (records_[key].spec == spec) return key;
    }
    if (found->second.keys.size() >= kMostSpecs) free_of_name(found->second);
  }
  check_capacity(1);
  return add(spec, names_.try_emplace(name).first);
}

// Everything that may throw precedes the first visible change: a tensor that the engine does not learn of must not be
// found by its name. A name without tensors, which an exception may leave behind, has no effect.
Key NameTable::add(const TensorSpec& spec, NameMap::iterator place) {
  const bool reused = !free_keys_.empty();
  const Key key = reused ? free_keys_.back() : static_cast<Key>(records_.size());
  std::optional<TensorRecord> fresh;
  TensorRecord& filled = reused ? records_[key] : fresh.emplace();
  if (reused) filled = TensorRecord{};
  filled.item.bytes = is_request(spec.kind) ? 0 : spec.bytes();
  filled.plain = spec.kind == CollectiveKind::kAllReduce;
  filled.set = spec.set;
  filled.spec = spec;
  reserve_more(place->second.keys, 1);
  reserve_more(declared_, 1);
  if (reused) {
    free_keys_.pop_back();
  } else {
    reserve_more(free_keys_, records_.size() + 1);  // it is empty
    records_.push_back(std::move(*fresh));
  }
  TensorRecord& added = records_[key];
  added.item.spec = &added.spec;
  added.name = &place->second;
  added.place = place;
  place->second.keys.push_back(key);
  declared_.push_back(key);
  if (added.is_kept()) ++kept_;
  return key;
}

void NameTable::retire(TensorRecord& record) noexcept {
  record.item.work = nullptr;
  record.name->in_flight = false;
  record.used = ++ends_;
  if (!record.spec.once) return;
  const Key key = record.item.submission.key;
  std::erase(record.name->keys, key);
  if (record.name->keys.empty()) names_.erase(record.place);
  record.name = nullptr;
  free_keys_.push_back(key);  // add() reserved capacity
}

void NameTable::begin_epoch() {
  undeclared_.clear();
  declared_.clear();
  declared_.reserve(size());
  for (Key key = 0; key < records_.size(); ++key) {
    records_[key].taken = false;
    if (has(key)) declared_.push_back(key);
  }
}

void NameTable::take_changes(SubmissionBatch& batch) {
  batch.declared.reserve(declared_.size());
  for (const Key key : declared_) {
    batch.declared.emplace_back(key, &records_[key].spec);
    records_[key].taken = true;
  }
  declared_.clear();
  batch.undeclared = std::exchange(undeclared_, {});
}

}  // namespace horo
