// TensorSpec: the declaration of a tensor, with everything that must be equal on all ranks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "horo/base/types.h"

namespace horo {

// The channel of the requests that the members of a process set make alone. Callers have channel 0 alone, so no tensor
// has the name of such a request.
constexpr std::uint32_t kMembersChannel = UINT32_MAX;

struct TensorSpec {
  std::uint32_t set = 0;      // process set; 0 is the world
  std::uint32_t channel = 0;  // stream of collectives inside the set
  std::string name;           // unique among the set and channel
  bool once = false;          // an unnamed operation: its name is not used again, so no rank keeps it
  bool stepwise = false;      // submitted once between two step ends, as a gradient is; may be in a known plan
  CollectiveKind kind = CollectiveKind::kAllReduce;
  ReduceOp op = ReduceOp::kSum;
  DType dtype = DType::kFloat32;
  Order order = Order::kCanonical;
  DeviceType device = DeviceType::kHost;  // of in and out; barrier: kHost
  int root = 0;   // rank inside the set: broadcast, reduce, gather, scatter; send_recv: the sender
  int peer = -1;  // send_recv: the receiver; else -1
  double prescale = 1.0;
  double postscale = 1.0;
  // The shape of this rank's input. all_gather, all_to_all, gather and scatter: the first dimension may differ between
  // ranks, the others may not. add_process_set: the ranks, ascending; remove_process_set: the set; join, barrier:
  // empty.
  std::vector<std::int64_t> shape;
  // reduce_scatter: rows for each member; empty: evenly, the first have one more. all_gather, gather: rows from each
  // member, with counts_known alone.
  std::vector<std::int64_t> splits;
  // all_gather, gather, all_to_all, scatter: the members exchange no sizes, because they know them: from `splits`, or
  // the shape is equal on all members, and all_to_all and scatter deal the rows evenly.
  bool counts_known = false;
  std::string set_name;     // add_process_set: its name; empty: "process set <number>"
  bool by_members = false;  // add_ and remove_process_set: the set's members make it, on kMembersChannel
  bool shrinks = false;     // add_process_set: in an elastic job it goes on when it has lost members
  std::string codec;        // all_reduce: codec of the bytes on the wire; empty: none
  std::string custom_op;    // of ReduceOp::kCustom: its name
  // A greater priority runs sooner, among ready tensors; results do not depend on it. barrier, send_recv: 0.
  std::int32_t priority = 0;
  // The tensors of one unit start together or fail together; they need not be adjacent. Empty: no unit.
  std::string unit;
  int unit_size = 0;  // tensors in it
  // The sequence of rounds that the tensor belongs to; 0: none. For a stepwise all_reduce with a name (see
  // Session::begin_round), and for a barrier with a name. In an elastic job the works of a round end when all members
  // have submitted the round's barrier after the tensors of the round: the barrier commits the round.
  std::uint64_t round_stream = 0;

  // Product of the shape; 1 for a scalar. Throws std::invalid_argument on a negative dimension or more than 2^58
  // elements.
  std::size_t elements() const;
  std::size_t bytes() const;  // elements() * size_of(dtype)
  bool operator==(const TensorSpec&) const = default;
};

// The first relevant difference between two ranks' specs of one name, in words ("float32 against int32"), or
// an empty string where they agree. Shapes of an all_gather are compared from the second dimension on.
std::string difference(const TensorSpec& a, const TensorSpec& b);

// "all_reduce average float32 [64, 3]": for error messages.
std::string describe(const TensorSpec& spec);

}  // namespace horo
