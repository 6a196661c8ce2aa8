// Checks of specs and submissions at the call, before anything is queued.
#pragma once

#include <string>
#include <vector>

#include "horo/base/config.h"
#include "horo/base/tensor_spec.h"
#include "horo/tensors/known_sets.h"
#include "horo/tensors/registry.h"

namespace horo {

struct Submission;

// "all_reduce of tensor 'x' of process set 'evens'"; the world is not named.
std::string subject_of(const TensorSpec& spec, const SetInfo& set);

// Throws std::invalid_argument with the name of the tensor, the error and the valid values. `set` is that of the spec;
// this rank is a member.
void check_spec(const TensorSpec& spec, const SetInfo& set, const Config& config, const Registry& registry);

// The same for a submission of a checked spec.
void check_submission(const TensorSpec& spec, const SetInfo& set, const Submission& submission);

// The rows of each member: `splits`, or an even division of `rows` if there are no splits.
std::vector<std::int64_t> rows_for_each(const std::vector<std::int64_t>& splits, std::int64_t rows, int members);

// Elements in one row: the product of all dimensions but the first.
std::size_t row_elements(const TensorSpec& spec);

// The size of the result is known only after the ranks have exchanged theirs.
bool has_varying_result(CollectiveKind kind);

}  // namespace horo
