// The leader's stream, applied in order. Every rank counts the releases of a set by itself: the stream is the same for
// all.
#include <set>
#include <utility>
#include <variant>

#include "controller/member.h"
#include "horo/base/error.h"
#include "horo/base/wire.h"

namespace horo {

void Member::apply(const DownMessage& message, Actions& actions) {
  ++heard_;
  for (const DownItem& item : message.items) {
    std::visit([&](const auto& one) { apply(one, actions); }, item);
  }
}

std::string Member::describe_ref(const TensorRef& ref) const {
  if (ref.name) return "tensor '" + ref.name->name + "'";
  const std::string number = "tensor number " + std::to_string(*ref.id);
  if (*ref.id >= by_id_.size() || !by_id_[*ref.id]) return number + " (unknown)";
  return number + " ('" + tensors_.at(*by_id_[*ref.id]).spec.name + "')";
}

// The key of a tensor that the leader speaks of, which has to be in flight here. Learns its id.
Key Member::pending_key(const TensorRef& ref, const char* what) {
  std::optional<Key> key;
  if (ref.name) {
    key = pending_key(*ref.name);
  } else if (*ref.id < by_id_.size() && by_id_[*ref.id] && pends(*by_id_[*ref.id])) {
    key = by_id_[*ref.id];
  }
  if (!key) {
    throw ProtocolError("rank 0 " + std::string(what) + " " + describe_ref(ref) + ", which rank " +
                        std::to_string(config_.rank) + " has not submitted");
  }
  if (ref.id) {
    if (tensor(*key).spec.once) throw ProtocolError("rank 0 gave a number to the unnamed " + describe_ref(ref));
    if (*ref.id >= by_id_.size()) by_id_.resize(*ref.id + std::size_t{1});
    by_id_[*ref.id] = *key;
    tensor(*key).id = *ref.id;
  }
  return *key;
}

// Each name is followed by a zero, so that "ab", "c" is not "a", "bc".
std::uint64_t Member::hash_of(const std::vector<Key>& keys) const {
  std::uint64_t hash = hash64("");
  for (const Key key : keys) {
    const std::string& name = tensors_.at(key).spec.name;
    hash = hash64(std::string_view(name.c_str(), name.size() + 1), hash);
  }
  return hash;
}

void Member::release(Release release, Actions& actions) {
  release.set = tensor(release.keys.front()).spec.set;
  release.number = ++numbers_[release.set];
  if (!release.known) release.key_hash = hash_of(release.keys);
  actions.emplace_back(std::move(release));
}

void Member::apply(const ReleaseTensors& item, Actions& actions) {
  Release bucket;
  bucket.absent_ranks = item.absent_ranks;
  for (const TensorRef& ref : item.tensors) {
    const Key key = pending_key(ref, "released");
    bucket.keys.push_back(key);
    tensor(key).pending = false;  // a second time in one bucket is found out
  }
  const std::vector<Key> keys = bucket.keys;
  release(std::move(bucket), actions);
  for (const Key key : keys) settle(key);
}

void Member::apply(const SkipTensors& item, Actions& actions) {
  Skip skip;
  for (const TensorRef& ref : item.tensors) {
    skip.keys.push_back(pending_key(ref, "skipped"));
    settle(skip.keys.back());
  }
  actions.emplace_back(std::move(skip));
}

Member::KnownPlan& Member::told_plan(PlanId id, const char* what) {
  if (id >= 1 && id <= plans_.size() && plans_[id - 1].live) return plans_[id - 1];
  throw ProtocolError("rank 0 " + std::string(what) + " plan " + std::to_string(id) + ", which rank " +
                      std::to_string(config_.rank) + " does not know");
}

void Member::apply(const ReleasePlan& item, Actions& actions) {
  KnownPlan& p = told_plan(item.plan, "released");
  if (!std::exchange(p.complete, false)) {
    throw ProtocolError("rank 0 released plan " + std::to_string(item.plan) + " (tensor '" +
                        tensor(p.keys.front()).spec.name + "' and others), which rank " + std::to_string(config_.rank) +
                        " has not submitted");
  }
  p.queued = false;
  p.absent.clear();
  if (item.exceptions.empty()) return release({0, 0, p.keys, p.key_hash, {}, true, item.plan}, actions);
  if (item.exceptions.back().slot >= p.keys.size()) {
    throw ProtocolError("rank 0 released slot " + std::to_string(item.exceptions.back().slot) + " of plan " +
                        std::to_string(item.plan) + ", which has " + std::to_string(p.keys.size()) + " tensors");
  }
  std::vector<Key> present = p.keys;
  for (auto absence = item.exceptions.rbegin(); absence != item.exceptions.rend(); ++absence) {
    present.erase(present.begin() + absence->slot);
  }
  if (!present.empty()) release({0, 0, std::move(present), 0, {}, false, 0}, actions);
  for (const SlotAbsence& absence : item.exceptions) {
    const Key key = p.keys[absence.slot];
    if (absence.ranks.size() == static_cast<std::size_t>(config_.size)) {
      actions.emplace_back(Skip{{key}});
    } else {
      release({0, 0, {key}, 0, absence.ranks, false, 0}, actions);
    }
  }
}

Key Member::plannable_key(TensorId id, PlanId plan) {
  if (id < by_id_.size() && by_id_[id] && tensor(*by_id_[id]).plan == 0) return *by_id_[id];
  throw ProtocolError("rank 0 put " + describe_ref({{}, id}) + " into plan " + std::to_string(plan) + ", but rank " +
                      std::to_string(config_.rank) + " does not know it, or has it in another");
}

void Member::apply(const DefinePlan& item, Actions& actions) {
  const PlanId next = static_cast<PlanId>(plans_.size() + 1);
  if (item.plan != next) {
    throw ProtocolError("rank 0 defined plan " + std::to_string(item.plan) + ", plan " + std::to_string(next) +
                        " expected");
  }
  KnownPlan p;
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
  KnownPlan& p = told_plan(item.plan, "dissolved");
  spread(p);
  p.live = false;
  for (const Key key : p.keys) tensor(key).plan = 0;
  actions.emplace_back(Break{item.plan});
}

// A failure may be of what only others have submitted.
void Member::apply(const FailTensors& item, Actions& actions) {
  const FailTensors::Tensor* missed = nullptr;
  for (const FailTensors::Tensor& failed : item.tensors) {
    if (const std::optional<Key> key = pending_key(failed.name)) {
      actions.emplace_back(Fail{{*key}, failed.head + item.text});
      settle(*key);
      continue;
    }
    if (missed == nullptr) missed = &failed;
    if (failed.once && item.stalled) owed_[failed.name] = failed.head + item.text;
  }
  if (item.stalled && missed != nullptr) actions.emplace_back(Warn{missed->head + item.text});
}

void Member::apply(const AskWhere& item, Actions& actions) {
  actions.emplace_back(Where{item.question});
}

}  // namespace horo
