// Collective: the description of one collective, and the memory that it uses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "horo/base/time.h"
#include "horo/base/types.h"
#include "ring/schedule/schedule.h"

namespace horo {

struct CustomOp;

inline constexpr int kHostDevice = -1;

// Memory that a collective reads or writes.
struct Buffer {
  std::byte* data = nullptr;
  std::size_t bytes = 0;
  int device = kHostDevice;  // kHostDevice, or the number of a CUDA device
};

// Memory from Group::allocate, aligned to 64 bytes. Freed or unmapped when `data` is destroyed.
struct Allocation {
  std::unique_ptr<std::byte, std::function<void(std::byte*)>> data;
  std::size_t bytes = 0;
};

// A part of a tensor that is not contiguous in memory. in and out are equal, or disjoint from all other pieces.
struct Piece {
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
  std::size_t bytes = 0;  // whole elements
};

// One collective, equal on all members except for the buffers. Counts are numbers of elements and may be zero.
//
//   kind            in                                      out
//   all_reduce      count elements                          count elements
//   reduce          count elements                          root: count elements, others: not written
//   reduce_scatter  sum(counts) elements                    counts[my index] elements
//   all_gather      counts[my index] elements               sum(counts) elements, in order of members
//   gather          counts[my index] elements               root: as all_gather, others: not written
//   scatter         root: sum(counts) elements              counts[my index] elements
//   all_to_all      parts for members, in their order       parts from members, in their order
//   broadcast       root: count elements, others: not read  count elements
//   send_recv       root: count elements, other: not read   other: count elements, root: not written
//   barrier         empty                                   empty
//
// A send_recv needs a group of two. in and out are equal (in place) or disjoint. If they differ, in is never written.
// An all_gather or gather is in place too, without a copy, if its in lies at its place in out. Only the elements above
// are written to out. counts: one value for all_reduce, reduce, broadcast and send_recv; size * size values for
// all_to_all, the elements from member i to member j at i * size + j; none for barrier; one per member for the other
// kinds.
//
// Reductions: result = round(postscale * (T(prescale * widen(x)) / divisor)), where T sums in the canonical tree over
// `contributors` (Order::kCanonical) or in any order (kFast). The divisor applies to kAverage only. kCustom is always
// canonical, in the type itself, without factors (ring/reduce/custom_op.h).
struct Collective {
  CollectiveKind kind = CollectiveKind::kAllReduce;
  ReduceOp op = ReduceOp::kSum;
  const CustomOp* custom = nullptr;  // of kCustom; valid until the collective has ended
  DType dtype = DType::kFloat32;
  Order order = Order::kCanonical;
  Buffer in;
  Buffer out;
  std::span<const Piece> pieces{};  // if Group::takes_pieces(): in place of in and out, in this order
  std::vector<std::size_t> counts;
  int root = 0;  // index of a member: of reduce, gather, scatter and broadcast; of send_recv the sender
  // Ids of the members in T, by index. kAbsent: the member has no value; its in is not read, its out is written as
  // usual.
  std::vector<std::int64_t> contributors;
  double prescale = 1.0;
  double postscale = 1.0;
  double divisor = 1.0;
  std::uint32_t channel = 0;
  std::uint64_t plan = 0;      // differs between concurrent collectives of a channel
  std::uint64_t key_hash = 0;  // of the names of the tensors
  TimePoint deadline = TimePoint::max();
  std::string what;  // for errors: "gradient conv1.weight and 11 more"
};

// The bytes of the tensors, for counters.
inline std::size_t payload_bytes(const Collective& c) {
  if (c.kind == CollectiveKind::kAllReduce) return c.counts[0] * size_of(c.dtype);
  if (c.kind == CollectiveKind::kBarrier) return 0;
  return std::accumulate(c.counts.begin(), c.counts.end(), std::size_t{0}) * size_of(c.dtype);
}

}  // namespace horo
