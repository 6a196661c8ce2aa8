// HORO_CHECK: an assertion about horo's own code that is also checked in release builds.
#pragma once

namespace horo {

// Names this process in the message of a failed check: "rank 2 of 4, epoch 0". Any thread; the last call wins.
void set_check_context(int rank, int size, unsigned epoch) noexcept;

[[noreturn]] void check_failed(const char* claim, const char* file, int line) noexcept;

}  // namespace horo

// Aborts the process with rank, epoch, file and line if the claim is false. It detects bugs of horo, never a user's
// mistake.
#define HORO_CHECK(claim) ((claim) ? static_cast<void>(0) : ::horo::check_failed(#claim, __FILE__, __LINE__))
