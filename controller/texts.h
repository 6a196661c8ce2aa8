// The words of what the leader tells all ranks when a tensor fails: who said what, who is missing, what to do.
#pragma once

#include <string>
#include <vector>

#include "horo/base/tensor_spec.h"

namespace horo {

// "rank 3", "ranks 0, 2-5"; cut where it gets long. Ascending.
std::string ranks_text(const std::vector<int>& ranks);

// What some ranks said of a tensor.
struct Said {
  const TensorSpec* spec = nullptr;
  std::vector<int> ranks;
};
// "all_reduce of tensor 'conv1.weight': ranks disagree: shape [2, 3] on ranks 0, 2-5; shape [3, 2] on rank 1. ..."
std::string mismatch_text(const std::vector<Said>& said);

// "tensor 'x': rank 2 has left (horo.shutdown, or the end of the program) and will not submit it. ..."; left: who will
// not submit it, in the order in which they left.
std::string left_text(const std::string& name, const std::vector<int>& left);

}  // namespace horo
