// ViewChanges: the state of a job as its hosts are told, with numbered changes.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "elastic/job_view.h"

namespace horo {

class ViewChanges {
 public:
  void begin(JobView view);   // of a job
  bool update(JobView view);  // of the same job; whether it is another one than before
  std::uint64_t last() const { return last_; }
  // What a host needs that knows the state after the change with this number; 0: it knows none. One object for all that
  // ask for the same before the next change.
  std::shared_ptr<const JobChange> since(std::uint64_t number);

 private:
  JobView view_;
  std::uint64_t last_ = 0;
  std::vector<std::uint64_t> changed_in_;  // the last change of each member, by id
  std::shared_ptr<const JobChange> made_;  // null: none since the last change
  std::uint64_t made_since_ = 0;
};

}  // namespace horo
