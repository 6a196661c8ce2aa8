// Job: a released collective with the buffers of this rank, and how it maps to collectives of a group.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "controller/coordinator.h"
#include "horo/base/config.h"
#include "horo/tensors/item.h"
#include "ring/group.h"

namespace horo {

struct Job {
  Release release;
  ItemList items;           // in bucket order
  TimePoint released = {};  // when this rank received the release; only with a timeline or the accounting
  std::uint64_t turn = 0;   // of DeviceTurns; 0: none, since it uses no device or goes by way of the host
  const Item& first() const { return items->front(); }
};

// The ranks that take part in a job.
struct Participants {
  Group& group;
  const std::vector<int>& ranks;    // of the world, ascending: the members of the group
  const std::vector<int>& members;  // of the process set, as world ranks; `ranks` is a subset
  std::uint32_t channel = 0;
  // Bytes sent on this lane since all ranks last synchronized, which a peer may not have posted receives for; null: no
  // such bytes are allowed.
  std::size_t* eager_bytes = nullptr;
};

// The collective of the job, without buffers and counts.
Collective collective_for(const Job& job, const Participants& participants, const Config& config);

// The out buffer of the caller is too small for the result. Detected after the collective, so other ranks do not fail.
class OutTooSmall : public std::invalid_argument {
 public:
  using std::invalid_argument::invalid_argument;
};

// Jobs with a codec or Adasum: each tensor is cut into parts by itself, so they need no bucket.
bool runs_by_tensor(const TensorSpec& spec);

// Runs one item that is not part of a bucket, of any kind. Returns the outcome of its Work. Throws what the group
// throws, and OutTooSmall.
Outcome run_item(const Item& item, const Collective& like, const Participants& participants);

// The bytes that the item's collective writes to Submission::out on this rank; 0 where the size of the result varies.
std::size_t out_bytes_of(const Item& item, const Participants& participants);
// The result of a broadcast is in the memory of its source already.
bool is_source_in_place(const Item& item, const Group& group);
std::string too_small_text(const Item& item, std::size_t bytes);

// The group does not write to a buffer that is used as `in` only.
Buffer buffer_of(const void* data, std::size_t bytes);

}  // namespace horo
