// all_reduce with Adasum (Maleki et al., "Scaling distributed training with adaptive summation", 2021). Two values are
// combined as (1 - a.b / (2 a.a)) a + (1 - a.b / (2 b.b)) b, with the dot products of whole tensors: orthogonal ones
// are added, parallel ones averaged. More values are combined in the canonical tree.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "ring/group.h"

namespace horo {

// One of the tensors that are sent together. in and out are equal or disjoint; any alignment.
struct AdasumTensor {
  const std::byte* in = nullptr;  // not read if this member is absent
  std::byte* out = nullptr;
  std::size_t elements = 0;
};

// Working memory, kept from call to call. One thread at a time.
struct AdasumScratch {
  std::vector<std::byte> wire, received, values;
  std::vector<double> dots, all_dots;
};

// For each tensor: out = round(postscale * T(prescale * widen(in))), where T combines in the canonical tree over the
// contributors, in the accumulator type (float32; float64 for float64) with dot products in float64. A value whose
// square is 0 leaves the other one as it is; one that has a NaN or an infinity, or whose square float64 cannot hold,
// makes the tensor NaN. The bits depend on the contributors' values alone, not on which tensors are sent together.
// `collective`: its dtype, contributors, scaling, channel, key_hash, deadline and `what` are used, and the plan numbers
// plan and plan + 1; in, out and counts are not read. All of these and the tensors' elements are equal on all members.
//
// Blocks. Throws std::invalid_argument before anything is sent, and what Group::run() throws.
void run_adasum(Group& group, const Collective& collective, std::span<const AdasumTensor> tensors,
                AdasumScratch& scratch);

}  // namespace horo
