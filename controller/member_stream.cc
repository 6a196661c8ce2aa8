// Applies the leader's stream in order. Every rank counts all releases, those without it included, so that a release
// has the same number on all ranks.
#include <algorithm>
#include <set>
#include <utility>
#include <variant>

#include "controller/member.h"
#include "horo/base/error.h"
#include "horo/base/wire.h"

namespace horo {
namespace {

constexpr std::uint64_t kLongestHoldUs = std::uint64_t{1} << 42;  // 50 days

}  // namespace

void Member::apply(const DownMessage& message, Actions& actions) {
  ++applied_;
  sent_ = message.sent;
  if (config_.elastic) keep_effects(message);
  for (const DownItem& item : message.items) {
    std::visit([&](const auto& one) { apply(one, actions); }, item);
  }
}

std::string Member::describe_ref(const TensorRef& ref) const {
  if (ref.name) return "tensor '" + ref.name->name + "'";
  const std::string number = "tensor number " + std::to_string(*ref.id);
  if (*ref.id >= by_id_.size() || !by_id_[*ref.id].key) return number + " (unknown)";
  return number + " ('" + tensors_.at(*by_id_[*ref.id].key).spec.name + "')";
}

bool Member::is_member(std::uint32_t set) const {
  const KnownSet* found = sets_.find(set);
  return found != nullptr && found->members.contains(config_.rank);
}

std::string Member::of_set(std::uint32_t set) const {
  const KnownSet* found = sets_.find(set);
  return of_set_text(set, found == nullptr ? "" : found->name);
}

Member::KnownId& Member::known_id(TensorId id) {
  if (id >= by_id_.size()) by_id_.resize(id + std::size_t{1});
  return by_id_[id];
}

// The process set of a tensor. The item that gives a tensor its id carries its name, and so its set.
std::uint32_t Member::set_of(const TensorRef& ref) {
  if (ref.name && ref.id) {
    known_id(*ref.id).given = true;
    known_id(*ref.id).set = ref.name->set;
  }
  if (ref.name) return ref.name->set;
  return *ref.id < by_id_.size() ? by_id_[*ref.id].set : 0;
}

// ranks: those that take part; empty: all members of the set.
bool Member::takes_part(const std::vector<int>& ranks, const TensorRef& ref) {
  if (!is_member(set_of(ref))) return false;
  return ranks.empty() || std::binary_search(ranks.begin(), ranks.end(), config_.rank);
}

// The key of a tensor in an item, which must be in flight here. Stores its id.
Key Member::pending_key(const TensorRef& ref, const char* what) {
  std::optional<Key> key;
  if (ref.name) {
    key = pending_key(*ref.name);
  } else if (*ref.id < by_id_.size() && by_id_[*ref.id].key && is_pending(*by_id_[*ref.id].key)) {
    key = by_id_[*ref.id].key;
  }
  if (!key) {
    throw ProtocolError("rank 0 " + std::string(what) + " " + describe_ref(ref) + ", which rank " +
                        std::to_string(config_.rank) + " has not submitted");
  }
  if (ref.id) {
    if (tensor(*key).spec.once) throw ProtocolError("rank 0 gave a number to the unnamed " + describe_ref(ref));
    known_id(*ref.id) = {true, tensor(*key).spec.set, *key};
    tensor(*key).id = *ref.id;
  }
  return *key;
}

// A zero byte follows each name, so that "ab", "c" differs from "a", "bc".
std::uint64_t Member::hash_of(const std::vector<Key>& keys) const {
  std::uint64_t hash = hash64("");
  for (const Key key : keys) {
    const std::string& name = tensors_.at(key).spec.name;
    hash = hash64(std::string_view(name.c_str(), name.size() + 1), hash);
  }
  return hash;
}

// Where it is wanted, the first participating rank reports the end of the collective.
template <class Item>
void Member::release(Release release, const Item& item, Actions& actions) {
  release.set = tensor(release.keys.front()).spec.set;
  const std::vector<int>& ranks = release.ranks.empty() ? sets_.find(release.set)->ranks : release.ranks;
  release.reports_done = item.reports_done && ranks.front() == config_.rank;
  release.number = ++releases_;
  release.last = item.last.rank;
  release.hold = std::chrono::microseconds(static_cast<std::int64_t>(std::min(item.last.hold_us, kLongestHoldUs)));
  if (release.last >= 0 && sent_ > TimePoint{}) release.ready = sent_ - release.hold;
  if (!release.known) release.key_hash = hash_of(release.keys);
  actions.emplace_back(std::move(release));
}

void Member::apply(const ReleaseTensors& item, Actions& actions) {
  bool mine = true;
  for (const TensorRef& ref : item.tensors) mine = takes_part(item.ranks, ref) && mine;
  if (!mine) {
    ++releases_;
    return;
  }
  Release bucket;
  bucket.absent_ranks = item.absent_ranks;
  bucket.ranks = item.ranks;
  for (const TensorRef& ref : item.tensors) {
    const Key key = pending_key(ref, "released");
    bucket.keys.push_back(key);
    Tensor& t = tensor(key);
    t.pending = false;  // so that a second reference in one bucket is refused
    is_over_ = is_over_ || t.spec.kind == CollectiveKind::kRebuild;
    if (t.spec.stepwise && t.plan == 0) plannable_.insert(t.spec.set);
  }
  const std::vector<Key> keys = bucket.keys;
  release(std::move(bucket), item, actions);
  for (const Key key : keys) finish(key);
}

void Member::apply(const SkipTensors& item, Actions& actions) {
  Skip skip;
  for (const TensorRef& ref : item.tensors) {
    if (!takes_part(item.ranks, ref)) continue;
    skip.keys.push_back(pending_key(ref, "skipped"));
    finish(skip.keys.back());
  }
  if (!skip.keys.empty()) actions.emplace_back(std::move(skip));
}

Member::KnownPlan& Member::live_plan(PlanId id, const char* what) {
  if (id >= 1 && id <= plans_.size() && plans_[id - 1].live) return plans_[id - 1];
  throw ProtocolError("rank 0 " + std::string(what) + " plan " + std::to_string(id) + ", which rank " +
                      std::to_string(config_.rank) + " does not have");
}

void Member::apply(const ReleasePlan& item, Actions& actions) {
  KnownPlan& p = live_plan(item.plan, "released");
  if (!item.exceptions.empty() && item.exceptions.back().slot >= p.tensors) {
    throw ProtocolError("rank 0 released slot " + std::to_string(item.exceptions.back().slot) + " of plan " +
                        std::to_string(item.plan) + ", which has " + std::to_string(p.tensors) + " tensors");
  }
  if (!is_member(p.set)) return count_releases(item);
  if (!std::exchange(p.complete, false)) {
    throw ProtocolError("rank 0 released plan " + std::to_string(item.plan) + " (tensor '" +
                        tensor(p.keys.front()).spec.name + "' and others), which rank " + std::to_string(config_.rank) +
                        " has not submitted");
  }
  p.queued = false;
  p.absent.clear();
  if (item.exceptions.empty()) return release({0, 0, p.keys, p.key_hash, {}, true, item.plan}, item, actions);
  release_with_exceptions(p, item, actions);
}

// Releases the tensors that all members have as one bucket, then each of the others as a separate bucket.
void Member::release_with_exceptions(const KnownPlan& plan, const ReleasePlan& item, Actions& actions) {
  std::vector<Key> present = plan.keys;
  for (auto absence = item.exceptions.rbegin(); absence != item.exceptions.rend(); ++absence) {
    present.erase(present.begin() + absence->slot);
  }
  if (!present.empty()) release({0, 0, std::move(present), 0, {}, false, 0}, item, actions);
  for (const SlotAbsence& absence : item.exceptions) {
    const Key key = plan.keys[absence.slot];
    if (absence.ranks.size() == sets_.find(plan.set)->ranks.size()) {
      actions.emplace_back(Skip{{key}});
    } else {
      release({0, 0, {key}, 0, absence.ranks, false, 0}, item, actions);
    }
  }
}

// Counts the releases of release_with_exceptions(), without this rank.
void Member::count_releases(const ReleasePlan& item) {
  const KnownPlan& p = plan(item.plan);
  const KnownSet* set = sets_.find(p.set);
  if (set == nullptr) throw ProtocolError("rank 0 released a plan of a process set that it removed");
  if (item.exceptions.size() < p.tensors) ++releases_;
  for (const SlotAbsence& absence : item.exceptions) {
    if (absence.ranks.size() < set->ranks.size()) ++releases_;
  }
}

Key Member::plannable_key(TensorId id, PlanId plan) {
  if (id < by_id_.size() && by_id_[id].key && tensor(*by_id_[id].key).plan == 0) return *by_id_[id].key;
  throw ProtocolError("rank 0 put " + describe_ref({{}, id}) + " into plan " + std::to_string(plan) + ", but rank " +
                      std::to_string(config_.rank) + " does not have it, or has it in another plan");
}

void Member::apply(const DefinePlan& item, Actions& actions) {
  const PlanId next = static_cast<PlanId>(plans_.size() + 1);
  if (item.plan != next) {
    throw ProtocolError("rank 0 defined plan " + std::to_string(item.plan) + ", plan " + std::to_string(next) +
                        " expected");
  }
  KnownPlan p;
  p.set = set_of({{}, item.tensors.front()});
  p.tensors = item.tensors.size();
  if (!is_member(p.set)) {
    plans_.push_back(std::move(p));
    return;
  }
  for (const TensorId id : item.tensors) p.keys.push_back(plannable_key(id, item.plan));
  if (std::set<Key>(p.keys.begin(), p.keys.end()).size() < p.keys.size()) {
    throw ProtocolError("rank 0 put a tensor into plan " + std::to_string(item.plan) + " twice");
  }
  for (std::uint32_t slot = 0; slot < p.keys.size(); ++slot) {
    tensor(p.keys[slot]).plan = item.plan;
    tensor(p.keys[slot]).slot = slot;
  }
  p.key_hash = hash_of(p.keys);
  actions.emplace_back(Learn{item.plan, p.keys});
  plans_.push_back(std::move(p));
}

void Member::apply(const DissolvePlan& item, Actions& actions) {
  KnownPlan& p = live_plan(item.plan, "dissolved");
  split(p);
  p.live = false;
  if (!is_member(p.set)) return;
  for (const Key key : p.keys) tensor(key).plan = 0;
  actions.emplace_back(Break{item.plan});
}

// The failed tensors may include some that this rank has not submitted. If it is one of the missing ranks, it writes a
// warning, and fails an unnamed tensor when it submits it, because every rank must count those.
void Member::apply(const FailTensors& item, Actions& actions) {
  const bool is_here = item.ranks.empty() || std::binary_search(item.ranks.begin(), item.ranks.end(), config_.rank);
  if (!is_here) return;
  const bool missed = std::binary_search(item.missing.begin(), item.missing.end(), config_.rank);
  const FailTensors::Tensor* first = nullptr;
  for (const FailTensors::Tensor& failed : item.tensors) {
    if (const std::optional<Key> key = pending_key(failed.name)) {
      fail(*key, failed.head + item.text, actions, failed.lost);
      continue;
    }
    if (first == nullptr) first = &failed;
    if (failed.once && missed) owed_.emplace(failed.name, Refusal{failed.head + item.text, failed.lost});
  }
  if (missed && first != nullptr) actions.emplace_back(Warn{first->head + item.text});
}

// The next report of these tensors has their specs. A pending one that was reported by id is released by name.
void Member::apply(const ForgetTensors& item, Actions&) {
  for (const TensorId id : item.tensors) forget(id);
  owes_report_ = true;
}

void Member::forget(TensorId id) {
  if (id >= by_id_.size() || !by_id_[id].given) {
    throw ProtocolError("rank 0 forgot tensor number " + std::to_string(id) + ", which it has not given");
  }
  const KnownId known = std::exchange(by_id_[id], {});
  if (!known.key) return;
  for (const Key key : names_.at(name_of(tensor(*known.key).spec))) {
    Tensor& t = tensor(key);
    if (t.id != id) continue;
    if (t.plan != 0) {
      throw ProtocolError("rank 0 forgot tensor '" + t.spec.name + "', which is in plan " + std::to_string(t.plan));
    }
    t.id.reset();
  }
}

void Member::apply(const RequestDiagnosis& item, Actions& actions) {
  actions.emplace_back(Diagnose{item.question});
}

}  // namespace horo
