// What a caller may declare and hand in: checked at the call, before anything is queued.
#pragma once

#include <string>
#include <vector>

#include "horo/base/config.h"
#include "horo/base/tensor_spec.h"
#include "horo/tensors/known_sets.h"
#include "horo/tensors/registry.h"

namespace horo {

struct Submission;

// "all_reduce of tensor 'x' of process set 'evens'"; the world goes without saying.
std::string subject_of(const TensorSpec& spec, const SetInfo& set);

// Throws std::invalid_argument naming the tensor, what is wrong and what would be right. `set` is the spec's, and this
// rank is in it.
void check_spec(const TensorSpec& spec, const SetInfo& set, const Config& config, const Registry& registry);

// The same for one submission of a spec that was checked.
void check_submission(const TensorSpec& spec, const SetInfo& set, const Submission& submission);

// The rows of `splits`, or, if there are none, of an even division of `rows`: one number for each of `members`.
std::vector<std::int64_t> rows_for_each(const std::vector<std::int64_t>& splits, std::int64_t rows, int members);

// Elements in one row: the product of all dimensions but the first.
std::size_t row_elements(const TensorSpec& spec);

// The result's size is known only when the ranks have told each other theirs.
bool has_varying_result(CollectiveKind kind);

}  // namespace horo
