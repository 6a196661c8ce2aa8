// What a schedule costs, counted from what it says.

#include <algorithm>

#include "ring/schedule/schedule_check.h"
#include "ring/schedule/schedule_parts.h"

namespace horo {
namespace {

bool accumulates(const Schedule& schedule, int area) {
  return area >= Schedule::kFirstScratch &&
         schedule.scratch[static_cast<std::size_t>(area - Schedule::kFirstScratch)].accumulates;
}

std::size_t sum_of(const std::vector<std::size_t>& sizes, int first, int count) {
  std::size_t sum = 0;
  for (int i = first; i < first + count; ++i) sum += sizes[static_cast<std::size_t>(i)];
  return sum;
}

// A floating area has room for the longest run.
std::size_t room_for(const Scratch& scratch, const std::vector<std::size_t>& sizes) {
  if (scratch.base != Scratch::kFloating) return sum_of(sizes, scratch.base, scratch.chunks);
  std::size_t most = 0;
  for (int first = 0; first + scratch.chunks <= static_cast<int>(sizes.size()); ++first) {
    most = std::max(most, sum_of(sizes, first, scratch.chunks));
  }
  return most;
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
      cost.scratch[me] += room_for(scratch, scratch.accumulates ? bytes.accumulating : bytes.as_it_is);
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
