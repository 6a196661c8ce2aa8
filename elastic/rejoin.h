// A member that was evicted asks its guard for a place among the ranks again, in the same process. It does so by the
// socket of the member that it was: it passes one end of a new socket pair, by which the guard answers with the id of a
// process that may join, or which the guard closes.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "elastic/messages.h"

namespace horo {

struct Admission {
  MemberId id = 0;
  int guard_fd = -1;  // the socket of the new member: GuardLink takes it. The caller owns it
};

// guard_fd: the socket of the evicted member, which is open. Blocks for up to `limit`. Nothing: the guard refuses, does
// not answer, or has ended. Throws std::system_error if there are no descriptors.
std::optional<Admission> ask_to_rejoin(int guard_fd, std::chrono::milliseconds limit);

// The guard's answer.
std::vector<std::byte> encode_admission(MemberId id);
// Throws ProtocolError.
MemberId decode_admission(std::span<const std::byte> bytes);

}  // namespace horo
