#include "elastic/service/view_changes.h"

#include <algorithm>
#include <utility>

namespace horo {

void ViewChanges::begin(JobView view) {
  view_ = std::move(view);
  last_ = 1;
  changed_in_.assign(view_.members.size(), last_);
  made_.reset();
}

bool ViewChanges::update(JobView view) {
  const JobChange change = change_of(view_, view);
  if (change.members.empty() && view.epoch == view_.epoch && view.is_parked == view_.is_parked) return false;
  view_ = std::move(view);
  ++last_;
  for (const auto& [id, member] : change.members) changed_in_[id] = last_;
  made_.reset();
  return true;
}

std::shared_ptr<const JobChange> ViewChanges::since(std::uint64_t number) {
  if (made_ != nullptr && made_since_ == number) return made_;
  JobChange change{view_.epoch, view_.is_parked, number == 0, {}};
  if (number == 0) change.members = change_of(first_job_view(view_.members.size()), view_).members;
  for (MemberId id = 0; number > 0 && id < view_.members.size(); ++id) {
    if (changed_in_[id] <= number) continue;
    const bool has_rank = std::binary_search(view_.ranks.begin(), view_.ranks.end(), id);
    change.members.emplace_hint(change.members.end(), id, JobChange::Member{view_.members[id], has_rank});
  }
  made_ = std::make_shared<const JobChange>(std::move(change));
  made_since_ = number;
  return made_;
}

}  // namespace horo
