// all_reduce with a codec on the wire: every member codes each owner's part of every tensor, the owner sums what it
// decodes in float32 in canonical order, codes the sum, and everybody decodes the same bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ring/codec/codec.h"
#include "ring/group.h"

namespace horo {

// What a stateful codec keeps of one tensor on one member from call to call; nothing at first. One thread at a time.
struct CodedState {
  std::vector<float> sender;  // lost when this member's values were coded: one for each element
  std::vector<float> owner;   // lost when the sums that this member owns were coded: one for each of their elements
  int size = 0;               // of the group and this member in it: what the owner's part depends on
  int index = 0;
};

// One of the tensors that travel together. in and out: equal, or disjoint; any alignment.
struct CodedTensor {
  const std::byte* in = nullptr;  // not read where this member is absent
  std::byte* out = nullptr;
  std::size_t elements = 0;
  std::uint64_t name_hash = 0;  // equal on all members: which of them owns the first part
  CodedState* state = nullptr;  // of this tensor; null: nothing is kept after the call
};

// Residuals that had to be dropped because the members or the tensor's length changed: how many, and the Euclidean
// norm of what is lost.
struct CodedReport {
  std::size_t dropped = 0;
  double norm = 0;
};

// Memory that is kept from call to call; one thread at a time.
struct CodedScratch {
  std::vector<std::byte> coded;
  std::vector<std::byte> received;
  std::vector<float> pieces;
  std::vector<CodedState> states;
};

// For each tensor: out = D(C(postscale * (T(D(C(prescale * in))) / divisor))), C and D the codec, T the canonical tree
// in float32 over the contributors; the bits depend neither on which tensors travel together nor on where they lie. Of
// `collective` the kind, op, dtype, contributors, scaling, channel, key_hash, deadline and what are used, and two plan
// numbers, plan and plan + 1; in, out and counts are not. Equal on all members: all of that, the codec, and elements
// and name_hash of the tensors.
//
// Blocks. Throws std::invalid_argument before anything is sent, std::runtime_error naming codec and tensor where the
// codec fails, and what run(Group) throws. A call that throws has left the states as they were.
CodedReport run_coded(Group& group, const Collective& collective, const Codec& codec,
                      std::span<const CodedTensor> tensors, CodedScratch& scratch);

}  // namespace horo
