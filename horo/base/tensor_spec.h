// What one rank says about a tensor when it declares it: everything that has to be equal on all ranks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "horo/base/types.h"

namespace horo {

struct TensorSpec {
  std::uint32_t set = 0;      // process set; 0 is the world
  std::uint32_t channel = 0;  // stream of collectives inside the set
  std::string name;           // unique among the set and channel
  bool once = false;          // an unnamed operation: its name never comes again, so nobody remembers it
  bool stepwise = false;      // comes once between two step ends, as a gradient does: may be bucketed for good
  CollectiveKind kind = CollectiveKind::kAllReduce;
  ReduceOp op = ReduceOp::kSum;
  DType dtype = DType::kFloat32;
  Order order = Order::kCanonical;
  int root = 0;   // rank inside the set: broadcast, reduce, gather, scatter; send_recv: who sends
  int peer = -1;  // send_recv: who receives; else -1
  double prescale = 1.0;
  double postscale = 1.0;
  // Of this rank's input. all_gather, all_to_all, gather and scatter: the first dimension may differ between ranks, the
  // others may not. add_process_set: the ranks, ascending; remove_process_set: the set; join, barrier: empty.
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> splits;  // reduce_scatter: rows for each member; empty: evenly, the first have one more
  std::string set_name;              // add_process_set: what it is to be called; empty: "process set <number>"
  std::string codec;                 // all_reduce: what travels instead of the values; empty: they do
  std::string custom_op;             // of ReduceOp::kCustom: its name
  // What is greater is run sooner, among what is ready; results are the same. barrier, send_recv: 0.
  std::int32_t priority = 0;
  // Tensors that are one unit start together or fail together; they need not be neighbours. Empty: it is none.
  std::string unit;
  int unit_size = 0;  // tensors in it

  // Product of the shape; 1 for a scalar. Throws std::invalid_argument on a negative dimension or more than 2^58
  // elements.
  std::size_t elements() const;
  std::size_t bytes() const;  // elements() * size_of(dtype)
  bool operator==(const TensorSpec&) const = default;
};

// The first difference that matters between what two ranks said of one name, in words ("float32 against int32"), or
// an empty string where they agree. Shapes of an all_gather are compared from the second dimension on.
std::string difference(const TensorSpec& a, const TensorSpec& b);

// "all_reduce average float32 [64, 3]": for error messages.
std::string describe(const TensorSpec& spec);

}  // namespace horo
