#include "controller/plan_cache.h"

namespace horo {

void Plan::mark(int rank, const std::vector<std::uint32_t>& absent_slots, TimePoint now) {
  complete.insert(rank);
  since[static_cast<std::size_t>(rank)] = now;
  for (const std::uint32_t slot : absent_slots) {
    absent.try_emplace(slot, static_cast<int>(since.size())).first->second.insert(rank);
  }
}

bool Plan::is_absent(std::uint32_t slot, int rank) const {
  const auto found = absent.find(slot);
  return found != absent.end() && found->second.contains(rank);
}

std::vector<SlotAbsence> Plan::exceptions() const {
  std::vector<SlotAbsence> exceptions;
  for (const auto& [slot, ranks] : absent) exceptions.push_back({slot, ranks.ranks()});
  return exceptions;
}

void Plan::clear() {
  complete.clear();
  absent.clear();
  for (auto& [stream, rounds_of_stream] : rounds) rounds_of_stream.clear();
}

PlanId PlanCache::define(std::uint32_t set, std::vector<TensorId> tensors) {
  Plan plan{set, std::move(tensors), 0, 0, RankSet(size_), RankSet(size_), {}, {}, {}, 0, true, {}};
  plan.since.assign(static_cast<std::size_t>(size_), TimePoint::min());
  plans_.push_back(std::move(plan));
  return static_cast<PlanId>(plans_.size());
}

Plan* PlanCache::find(PlanId plan) {
  return plan >= 1 && plan <= plans_.size() ? &plans_[plan - 1] : nullptr;
}

const Plan* PlanCache::find(PlanId plan) const {
  return plan >= 1 && plan <= plans_.size() ? &plans_[plan - 1] : nullptr;
}

std::vector<PlanId> PlanCache::live() const {
  std::vector<PlanId> live;
  for (std::size_t i = 0; i < plans_.size(); ++i) {
    if (plans_[i].live) live.push_back(static_cast<PlanId>(i + 1));
  }
  return live;
}

}  // namespace horo
