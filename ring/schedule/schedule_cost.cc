// Bytes and messages of a schedule, counted without running it.

#include <algorithm>

#include "ring/schedule/schedule_check.h"
#include "ring/schedule/schedule_parts.h"

namespace horo {
namespace {

std::size_t sum_of(const std::vector<std::size_t>& sizes, int first, int count) {
  std::size_t sum = 0;
  for (int i = first; i < first + count; ++i) sum += sizes[static_cast<std::size_t>(i)];
  return sum;
}

}  // namespace

Cost cost_of(const Shape& shape, const std::vector<Schedule>& schedules, const ChunkBytes& bytes) {
  Cost cost;
  const auto n = static_cast<std::size_t>(shape.size);
  cost.sent.assign(n, 0);
  cost.messages.assign(n, 0);
  cost.scratch.assign(n, 0);
  for (const Schedule& schedule : schedules) {
    const auto me = static_cast<std::size_t>(schedule.member);
    const auto host = static_cast<std::size_t>(host_of(shape, schedule.member));
    cost.left_hosts.resize(std::max(cost.left_hosts.size(), host + 1), 0);
    for (const Scratch& scratch : schedule.scratch) {
      const auto& sizes = scratch.accumulates ? bytes.accumulating : bytes.as_it_is;
      const auto size = [&sizes](int chunk) { return sizes[static_cast<std::size_t>(chunk)]; };
      cost.scratch[me] += room_for(scratch, schedule.chunks, size);
    }
    for (const Round& round : schedule.rounds) {
      for (const Message& message : round.send) {
        const Part& part = message.part;
        const bool partial = accumulates(schedule, part.area);
        const std::size_t sent = sum_of(partial ? bytes.accumulating : bytes.as_it_is, part.first, part.count);
        cost.sent[me] += sent;
        ++cost.messages[me];
        if (host_of(shape, message.peer) != static_cast<int>(host)) cost.left_hosts[host] += sent;
      }
    }
  }
  return cost;
}

}  // namespace horo
