// A rank's answer to a stall diagnosis as bytes.
#pragma once

#include <cstddef>

#include "controller/messages.h"
#include "horo/base/wire.h"

namespace horo {

inline constexpr std::size_t kLeastAnswerBytes = 24;

void write_answer(ByteWriter& out, const Diagnosis& answer);
// Throws ProtocolError for anything that write_answer() does not write under the limits of this configuration.
Diagnosis read_answer(ByteReader& in, const CoordinatorConfig& config);

}  // namespace horo
