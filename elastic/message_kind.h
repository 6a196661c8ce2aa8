// The kinds of messages between a member and the guard, as numbers on the wire.
#pragma once

#include <cstdint>

namespace horo {

enum class MessageKind : std::uint8_t {
  kFrozen = 1,
  kInstalled,
  kLeave,
  kFreeze,
  kView,
  kParked,
  kEvicted,
  kAsk,
  kReport,
  kSettle,
  kDrain,
  kMissed,
  kCanGrow,
  kReady,
  kSynced,
  kGrow
};

// How a member leaves.
inline constexpr std::uint8_t kLeaveDone = 0, kLeaveFailed = 1, kLeaveWithProcess = 2;

}  // namespace horo
