// Job: a released collective with this rank's buffers, and what it becomes for a group.
#pragma once

#include <stdexcept>
#include <vector>

#include "controller/coordinator.h"
#include "horo/base/config.h"
#include "horo/tensors/tensor_table.h"
#include "ring/group.h"

namespace horo {

struct Job {
  Release release;
  std::vector<Item> items;  // in bucket order
};

// Who takes part in a job.
struct JobGroup {
  Group& group;
  const std::vector<int>& ranks;    // of the world, ascending: the group's members
  const std::vector<int>& members;  // of the process set, as world ranks: `ranks` are of these
  std::uint32_t channel = 0;
  std::size_t* eager_bytes = nullptr;  // sent on this lane to who may not have got that far, since the last time that
                                       // all were there; null: nothing may be
};

// The collective of the job's first tensor, or of the bucket, but for buffers and counts.
Collective collective_for(const Job& job, const JobGroup& party, const Config& config);

// The caller's memory does not take the result: found when all is over, and nobody else's business.
class DoesNotFit : public std::invalid_argument {
 public:
  using std::invalid_argument::invalid_argument;
};

// Runs one item of the job, whatever its kind, and says what its Work ends with. Throws what the group throws, and
// DoesNotFit.
Outcome run_item(const Item& item, const Collective& like, const JobGroup& party);

// A group never writes to `in`.
Buffer buffer_of(const void* data, std::size_t bytes);

}  // namespace horo
