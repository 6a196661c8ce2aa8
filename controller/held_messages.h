// HeldMessages: of the leader's stream, what a rank need not know yet. A release of a message between two ranks, or of
// a collective whose ranks it names, changes nothing on the other ranks but a count. It is sent to them before the next
// message that concerns them, so that it does not wake their engines.
#pragma once

#include <cstddef>
#include <vector>

#include "controller/coordinator.h"
#include "controller/messages.h"
#include "controller/rank_set.h"

namespace horo {

// The ranks that have to do something when they apply the message.
RankSet concerned_by(const DownMessage& message, int size);

class HeldMessages {
 public:
  static constexpr std::size_t kMost = 64;             // that a rank has not been sent, and
  static constexpr std::size_t kMostBytes = 64 << 10;  // their bytes

  explicit HeldMessages(int size) : held_(static_cast<std::size_t>(size)) {}

  // Appends the next message to send.to, behind those that were held for it, or holds it too.
  void add(Send send, bool is_concerned, Actions& actions);
  // The rank has left.
  void drop(int rank) { held_[static_cast<std::size_t>(rank)] = {}; }

 private:
  struct Held {
    std::vector<Send> messages;
    std::size_t bytes = 0;
  };
  std::vector<Held> held_;  // by rank
};

}  // namespace horo
