// Small all-reduces: everybody sends its whole input to everybody and sums all of them itself, in canonical order. One
// message time instead of two. Between two members it moves the same bytes as shards would (2(N-1)/N = 1), so it pays
// for longer ones there (measured: up to about 32 KiB on loopback, where processors are the limit; always on long
// wires).

#include <cstring>

#include "ring/host_algorithms.h"
#include "ring/schedule.h"

namespace horo {
namespace {

constexpr std::size_t kMostBytesOfTwo = 32 << 10;
constexpr std::size_t kMostBytesOfMany = 4 << 10;
constexpr int kMostMembers = 32;

}  // namespace

bool suits_whole_exchange(const Collective& c, int size) {
  if (c.kind != CollectiveKind::kAllReduce || size < 2 || size > kMostMembers) return false;
  return c.counts[0] * size_of(c.dtype) <= (size == 2 ? kMostBytesOfTwo : kMostBytesOfMany);
}

void whole_all_reduce(const Party& party, const Collective& c) {
  const Mail mail(party, c);
  const std::size_t bytes = c.counts[0] * size_of(c.dtype);
  const auto scratch = party.scratch.take(bytes * static_cast<std::size_t>(party.size()));
  const auto arrival = [&](int member) { return scratch.part(static_cast<std::size_t>(member) * bytes, bytes); };
  if (bytes == 0) return;
  std::vector<Mail::Op> ops;
  for (const Step& step : direct_schedule(party.size(), party.index)) {
    if (!step.reduce) continue;
    if (!is_absent(c, step.from)) ops.push_back(mail.receive(step.from, 0, arrival(step.from)));
    if (!is_absent(c, party.index)) ops.push_back(mail.send(step.to, 0, {c.in.data, bytes}));
  }
  // All sends have ended as well before the result may replace the input.
  mail.wait(ops);
  std::vector<const std::byte*> inputs;
  for (int member = 0; member < party.size(); ++member) {
    if (is_absent(c, member)) continue;
    inputs.push_back(member == party.index ? c.in.data : arrival(member).data());
  }
  reduce_tree({c.dtype, c.op, scaling_of(c)}, tree_of(c), inputs, c.out.data, c.counts[0]);
}

}  // namespace horo
