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
  int root = 0;  // broadcast: rank inside the set
  double prescale = 1.0;
  double postscale = 1.0;
  std::vector<std::int64_t> shape;  // all_gather: the first dimension may differ between ranks, the others may not

  // Product of the shape; 1 for a scalar. Throws std::invalid_argument on a negative dimension or more than 2^60
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
