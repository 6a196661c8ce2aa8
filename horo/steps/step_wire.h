// A step of another host's rank as bytes, for the rank that gathers them. About 80.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "horo/steps/step_record.h"

namespace horo {

inline constexpr std::size_t kMaxStepBytes = 400;

std::vector<std::byte> encode(const StepRecord& record);
// The step has ended at `end`, on the reader's clock. Its marks of optimizers are not kept: stream is 0. Throws
// ProtocolError for anything that encode() does not write.
StepRecord decode_step(std::span<const std::byte> bytes, TimePoint end);

}  // namespace horo
