// all_reduce with a codec on the wire. Every part of a tensor has an owner. Each member encodes its values of all parts
// and sends them to the owners. An owner decodes and sums them in float32 in canonical order, and encodes the sum. All
// members decode the same bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ring/codec/codec.h"
#include "ring/group.h"

namespace horo {

// The state of a stateful codec for one tensor on one member, kept from call to call; empty at first. One thread at a
// time.
struct CodedState {
  std::vector<float> sender;  // by element: the residual of encoding this member's values
  std::vector<float> owner;   // by element of the part that this member owns: the residual of encoding the sum
  int size = 0;               // of the group, and this member's index in it: the owned part depends on both
  int index = 0;
};

// One of the tensors that are sent together. in and out are equal or disjoint; any alignment.
struct CodedTensor {
  const std::byte* in = nullptr;  // not read if this member is absent
  std::byte* out = nullptr;
  std::size_t elements = 0;
  std::uint64_t name_hash = 0;  // equal on all members; chooses the owner of the first part
  CodedState* state = nullptr;  // of this tensor; null: residuals are dropped after the call
};

// Residuals that were dropped because the members or the tensor's length changed: their number and Euclidean norm.
struct CodedReport {
  std::size_t dropped = 0;
  double norm = 0;
};

// Working memory, kept from call to call. One thread at a time.
struct CodedScratch {
  std::vector<std::byte> coded;
  std::vector<std::byte> received;
  std::vector<float> pieces;
  std::vector<CodedState> states;
};

// For each tensor: out = D(C(postscale * (T(D(C(prescale * in))) / divisor))), C and D the codec, T the canonical tree
// in float32 over the contributors. The bits depend neither on which tensors are sent together nor on their addresses.
// `collective`: its kind, op, dtype, contributors, scaling, channel, key_hash, deadline and `what` are used, and the
// plan numbers plan and plan + 1; in, out and counts are not read. All of these, the codec, and the tensors' elements
// and name_hash have to be equal on all members.
//
// Blocks. Throws std::invalid_argument before anything is sent, std::runtime_error naming codec and tensor if the codec
// fails, and what Group::run() throws. A call that throws leaves the states as they were.
CodedReport run_coded(Group& group, const Collective& collective, const Codec& codec,
                      std::span<const CodedTensor> tensors, CodedScratch& scratch);

}  // namespace horo
