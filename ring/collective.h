// Collective: what a group runs, and the memory that takes part in it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "horo/base/time.h"
#include "horo/base/types.h"
#include "ring/schedule/schedule.h"

namespace horo {

struct CustomOp;

inline constexpr int kHostDevice = -1;

// Memory that takes part in a collective.
struct Buffer {
  std::byte* data = nullptr;
  std::size_t bytes = 0;
  int device = kHostDevice;  // or the number of a CUDA device
};

// Memory that came from Group::allocate, aligned to 64 bytes; freed (or unmapped) with the last reference to it.
struct Allocation {
  std::unique_ptr<std::byte, std::function<void(std::byte*)>> data;
  std::size_t bytes = 0;
};

// A part of a tensor that lies in several places. in and out are equal, or disjoint from all other places.
struct Piece {
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
  std::size_t bytes = 0;  // whole elements
};

// One collective, equal on all members except for the buffers. All kinds count elements; lengths may be zero.
//
//   kind            in                                      out
//   all_reduce      count elements                          count elements
//   reduce          count elements                          root: count elements, others: not written
//   reduce_scatter  sum(counts) elements                    counts[my index] elements
//   all_gather      counts[my index] elements               sum(counts) elements, in order of members
//   gather          counts[my index] elements               root: as all_gather, others: not written
//   scatter         root: sum(counts) elements              counts[my index] elements
//   all_to_all      parts for members, in their order       parts of members, in their order
//   broadcast       root: count elements, others: not read  count elements
//   send_recv       root: count elements, other: not read   other: count elements, root: not written
//   barrier         empty                                   empty
//
// A send_recv is for groups of two. in and out are equal (in place) or disjoint; where they differ, in is never
// written. Also in place, and without a copy: an all_gather or gather whose in lies at its place in out. Of out no more
// is written than the elements above. counts: one value for all_reduce, reduce, broadcast and send_recv; size * size
// for all_to_all, what member i has for member j at i * size + j; none for barrier; one per member for the others.
//
// Reductions: result = round(postscale * (T(prescale * widen(x)) / divisor)), T the canonical tree over `contributors`
// (Order::kCanonical) or any order (kFast); the divisor is applied for kAverage alone.
// kCustom is always canonical, in the type itself, without factors (ring/reduce/custom_op.h).
struct Collective {
  CollectiveKind kind = CollectiveKind::kAllReduce;
  ReduceOp op = ReduceOp::kSum;
  const CustomOp* custom = nullptr;  // of kCustom; lives until the collective has ended
  DType dtype = DType::kFloat32;
  Order order = Order::kCanonical;
  Buffer in;
  Buffer out;
  std::span<const Piece> pieces{};  // where Group::takes_pieces(): instead of in and out, one behind the other
  std::vector<std::size_t> counts;
  int root = 0;  // index of a member: reduce, gather, scatter, broadcast; send_recv: who sends
  // Ids of the members in T, by index; kAbsent: this member has nothing to add (its in is not read; it still gets out).
  std::vector<std::int64_t> contributors;
  double prescale = 1.0;
  double postscale = 1.0;
  double divisor = 1.0;
  std::uint32_t channel = 0;
  std::uint64_t plan = 0;      // differs between collectives of a channel that are in flight together
  std::uint64_t key_hash = 0;  // of the names of the tensors
  TimePoint deadline = TimePoint::max();
  std::string what;  // for errors: "gradient conv1.weight and 11 more"
};

}  // namespace horo
