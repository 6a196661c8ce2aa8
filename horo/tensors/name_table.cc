#include "horo/tensors/name_table.h"

#include <optional>
#include <stdexcept>

#include "horo/tensors/submission_batch.h"

namespace horo {
namespace {

// Two pairs of ranks may use one name at once, so the name of a message includes its pair.
std::string pair_of(const TensorSpec& spec) {
  if (spec.kind != CollectiveKind::kSendRecv) return "";
  return " (" + std::to_string(spec.root) + " to " + std::to_string(spec.peer) + ")";
}

}  // namespace

bool is_request(CollectiveKind kind) {
  return kind == CollectiveKind::kAddSet || kind == CollectiveKind::kRemoveSet || kind == CollectiveKind::kJoin;
}

NameTable::Resolved NameTable::resolve(const TensorSpec& spec, const SetInfo& set) {
  Resolved resolved{spec, nullptr};
  TensorSpec& own = resolved.spec;
  if (spec.kind != CollectiveKind::kSendRecv) own.peer = -1;
  if (spec.kind == CollectiveKind::kSendRecv || spec.kind == CollectiveKind::kBarrier) own.priority = 0;
  if (spec.kind == CollectiveKind::kScatter && set.rank != spec.root) own.shape.front() = 0;
  if (spec.name.empty()) {
    const std::string kind = std::string(name_of(spec.kind));
    resolved.counter = &unnamed_calls(spec, kind + pair_of(spec));
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
  std::erase_if(unnamed_, [set](const auto& entry) { return std::get<0>(entry.first) == set; });
}

void NameTable::check_capacity(std::size_t tensors, bool once) const {
  if (records_.size() + tensors <= config_.max_tensors + (once ? free_keys_.size() : 0)) return;
  throw std::invalid_argument(std::to_string(records_.size()) +
                              " tensors are declared already, no more are allowed (HORO_MAX_TENSORS)");
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
  }
  check_capacity(1, spec.once);
  return add(spec, names_.try_emplace(name).first);
}

// Everything that may throw precedes the first visible change: a tensor that the engine does not learn of must not be
// found by its name. A name without tensors, which an exception may leave behind, has no effect.
Key NameTable::add(const TensorSpec& spec, NameMap::iterator place) {
  const bool reused = spec.once && !free_keys_.empty();
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
    if (spec.once) reserve_more(free_keys_, records_.size() + 1);  // it is empty
    records_.push_back(std::move(*fresh));
  }
  TensorRecord& added = records_[key];
  added.item.spec = &added.spec;
  added.name = &place->second;
  added.place = place;
  place->second.keys.push_back(key);
  declared_.push_back(key);
  return key;
}

void NameTable::retire(TensorRecord& record) noexcept {
  record.item.work = nullptr;
  record.name->in_flight = false;
  if (!record.spec.once) return;
  const Key key = record.item.submission.key;
  std::erase(record.name->keys, key);
  if (record.name->keys.empty()) names_.erase(record.place);
  record.name = nullptr;
  free_keys_.push_back(key);  // add() reserved capacity
}

std::vector<std::pair<Key, const TensorSpec*>> NameTable::take_declared() {
  std::vector<std::pair<Key, const TensorSpec*>> declared;
  declared.reserve(declared_.size());
  for (const Key key : declared_) declared.emplace_back(key, &records_[key].spec);
  declared_.clear();
  return declared;
}

}  // namespace horo
