#include "controller/forgetting.h"

#include <algorithm>
#include <utility>

namespace horo {
namespace {

// Ids are chosen in batches, because a choice looks at all of them.
constexpr std::size_t kBatches = 8;

}  // namespace

// An eighth of all ids stays free for the tensors that get an id until all ranks have forgotten a batch.
Forgetting::Forgetting(const CoordinatorConfig& config, LeaderTables& tables, const StreamWatermarks& progress)
    : tables_(tables),
      progress_(progress),
      kept_(std::min(config.kept_tensors, config.max_tensors - config.max_tensors / kBatches)),
      step_(std::max<std::size_t>(kept_ / kBatches, 1)),
      next_(kept_) {}

const TensorSpec* Forgetting::spec_of(int from, TensorId id) const {
  if (forgotten_.empty() || progress_.has_applied(from, message_)) return nullptr;
  const auto found = forgotten_.find(id);
  return found == forgotten_.end() || !found->second ? nullptr : &*found->second;
}

void Forgetting::choose(std::vector<DownItem>& items) {
  for (const DownItem& item : items) {
    if (const auto* end = std::get_if<DissolvePlan>(&item)) dissolved_.push_back({progress_.next_message(), end->plan});
  }
  settle();
  const std::size_t ids = tables_.tensors.ids();
  if (ids <= next_ || !forgotten_.empty()) return;
  ForgetTensors item{tables_.tensors.least_used(ids - kept_ + step_, in_dissolved_plans())};
  next_ = std::max(kept_, ids - item.tensors.size() + step_);
  if (item.tensors.empty()) return;
  for (const TensorId id : item.tensors) forgotten_.emplace(id, tables_.tensors.forget(id));
  message_ = progress_.next_message();
  items.emplace_back(std::move(item));
}

// Ends what all ranks have applied.
void Forgetting::settle() {
  if (dissolved_.empty() && forgotten_.empty()) return;
  const std::uint64_t applied = progress_.applied_by_all(tables_.left);
  for (; !dissolved_.empty() && dissolved_.front().message <= applied; dissolved_.pop_front()) {
    tables_.plans.find(dissolved_.front().plan)->tensors = {};
  }
  if (forgotten_.empty() || message_ > applied) return;
  for (const auto& [id, spec] : forgotten_) tables_.tensors.reuse(id);
  forgotten_.clear();
}

std::set<TensorId> Forgetting::in_dissolved_plans() const {
  std::set<TensorId> ids;
  for (const Dissolved& dissolved : dissolved_) {
    const std::vector<TensorId>& tensors = tables_.plans.find(dissolved.plan)->tensors;
    ids.insert(tensors.begin(), tensors.end());
  }
  return ids;
}

}  // namespace horo
