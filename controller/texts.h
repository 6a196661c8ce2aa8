// The texts of failures: the values that each rank reported, the missing ranks, and the remedy.
#pragma once

#include <string>
#include <vector>

#include "horo/base/tensor_spec.h"

namespace horo {

// "rank 3", "ranks 0, 2-5"; at most 16 ranges. The ranks must ascend.
std::string ranks_text(const std::vector<int>& ranks);

// The spec that some ranks reported for a tensor.
struct SpecReport {
  const TensorSpec* spec = nullptr;
  std::vector<int> ranks;
};
// "all_reduce of tensor 'conv1.weight': ranks disagree: shape [2, 3] on ranks 0, 2-5; shape [3, 2] on rank 1. ..."
// of_set here and below: of_set_text() of the process set.
std::string mismatch_text(const std::vector<SpecReport>& said, const std::string& of_set = "");

// "tensor 'x': rank 2 has left (horo.shutdown, or the end of the program) and will not submit it. ..."; left: the ranks
// that will not submit it, in the order in which they left.
std::string left_text(const std::string& name, const std::vector<int>& left, const std::string& of_set = "");
// "tensor 'x' of process set 'tp0': rank 0 has left (...), which coordinates all process sets. ..."; head: lost_head(),
// or that of a join. Rank 0 is not in the set.
std::string leader_left_text(const std::string& head);

// "all_gather of tensor 'x' is not possible while rank 2 has joined. ..."
std::string joined_text(const TensorSpec& spec, const std::vector<int>& joined, const std::string& of_set);
// "tensor 'x' of process set 'tp0' is one unit ('u') with tensor 'y', which failed: ", before the text of that failure.
// culprit: 'y'; empty: the unit itself failed.
std::string unit_head(const std::string& name, const std::string& unit, const std::string& culprit,
                      const std::string& of_set);
// The failure of an incomplete unit in a set that all ranks have joined.
std::string joined_unit_text();
// "join: rank 2 has left (...) and will not join. ..."
// The head and the common text of a tensor that cannot run in the epoch after the one in which it was submitted.
std::string lost_head(const std::string& name, const std::string& of_set);
std::string lost_text();
std::string lost_join_text(const std::vector<int>& left, const std::string& of_set);
// "tensor 'x' of process set 'tp0': the set was removed before ...".
std::string removed_text(const std::string& name, const std::string& of_set);
// "tensor 'x': this rank has joined ..."
std::string after_join_text(const std::string& name, const std::string& of_set);

}  // namespace horo
