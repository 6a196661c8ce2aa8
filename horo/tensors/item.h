// Item: a submission with everything that a lane needs to run it.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "horo/base/tensor_spec.h"
#include "horo/tensors/submission.h"
#include "horo/tensors/work.h"

namespace horo {

struct Item {
  const TensorSpec* spec = nullptr;  // lives as long as the tensor table
  Submission submission;
  std::shared_ptr<Work> work;
  std::size_t bytes = 0;     // of the spec; 0 for requests, which move no data
  std::uint64_t round = 0;   // rises with each round that this rank begins; 0: of no round
  TimePoint submitted = {};  // only with a timeline
};

// The items of one collective in bucket order. The engine, the queue of a lane and the packing of a known plan share
// one list.
using ItemList = std::shared_ptr<const std::vector<Item>>;

// A known plan of which this rank has submitted every tensor.
struct FilledPlan {
  PlanId plan = 0;
  ItemList items;
};

std::size_t bytes_of(std::span<const Item> items);

// The address of the first byte if the tensors form one contiguous buffer: each is reduced in place and begins where
// the previous one ends. Else null; also null if no tensor has bytes.
std::byte* contiguous_memory(std::span<const Item> items);

}  // namespace horo
