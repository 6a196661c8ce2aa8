// Dissemination barrier (Hensgen, Finkel and Manber, "Two algorithms for barrier synchronization", 1988): after round k
// every member has evidence that 2^(k+1) members have arrived.

#include <vector>

#include "ring/algorithms/messages.h"

namespace horo {

void barrier(const GroupContext& context, const Collective& c) {
  const Messenger messenger(context, c);
  std::uint32_t round = 0;
  for (int distance = 1; distance < context.size(); distance *= 2, ++round) {
    const int to = (context.index + distance) % context.size();
    const int from = (context.index - distance + context.size()) % context.size();
    const std::vector<Messenger::Op> ops{messenger.receive(from, round, {}), messenger.send(to, round, {})};
    messenger.wait(ops);
  }
}

}  // namespace horo
