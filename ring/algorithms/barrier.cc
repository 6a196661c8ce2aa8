// The barrier disseminates (Hensgen, Finkel and Manber, "Two algorithms for barrier synchronization", 1988): after
// round k everybody knows that 2^(k+1) members have come.

#include <vector>

#include "ring/algorithms/messages.h"

namespace horo {

void barrier(const Party& party, const Collective& c) {
  const Mail mail(party, c);
  std::uint32_t round = 0;
  for (int distance = 1; distance < party.size(); distance *= 2, ++round) {
    const int to = (party.index + distance) % party.size();
    const int from = (party.index - distance + party.size()) % party.size();
    const std::vector<Mail::Op> ops{mail.receive(from, round, {}), mail.send(to, round, {})};
    mail.wait(ops);
  }
}

}  // namespace horo
