#include "ring/schedule/schedule_time.h"

#include <algorithm>
#include <map>

#include "horo/base/shard.h"
#include "ring/schedule/schedule_parts.h"

namespace horo {
namespace {

constexpr int kMostSeen = 32;       // members whose schedules are made; where there are more, they stand for all
constexpr std::size_t kSlots = 16;  // as schedule_run.cc has them
constexpr std::size_t kSlotsOfHost = 4;
constexpr std::size_t kSlotsBytes = 32 << 20;

constexpr double kAtOnce = 32 << 10;  // bytes that one core hands to another at a time

using Kind = CollectiveKind;

// Seconds of work, by who does it.
struct Work {
  double core = 0;
  double out = 0, in = 0;            // wire inside the host
  double rail_out = 0, rail_in = 0;  // share of its rail
  void operator+=(const Work& other) {
    core += other.core;
    out += other.out, in += other.in;
    rail_out += other.rail_out, rail_in += other.rail_in;
  }
};

// What no help shortens in a round: of one message, from end to end.
struct Path {
  double work = 0;
  double latency = 0;
};

// What one slice has of each chunk.
class SlicedLoad {
 public:
  SlicedLoad(const Schedule& schedule, const Load& load) : load_(load), chunks_(schedule.chunks) {
    const std::size_t elements = load.bytes / load.element_bytes;
    const std::size_t most = std::max<std::size_t>(1, load.segment_bytes / load.element_bytes);
    const bool is_cut = cuts_evenly(schedule.kind);
    const auto parts = static_cast<std::size_t>(schedule.kind == Kind::kAllToAll ? schedule.size : chunks_);
    const std::size_t longest = is_cut ? most * parts : most;
    const std::size_t all = is_cut ? elements : elements / parts;
    count_ = std::max<std::size_t>(1, (all + longest - 1) / longest);
    slice_ = (all + count_ - 1) / count_;
    is_cut_ = is_cut;
  }

  std::size_t count() const { return count_; }
  // Elements of a run of chunks; neighbours lie together.
  double elements(int first, int count) const {
    if (!is_cut_) return static_cast<double>(slice_) * count;
    const Shard last = shard_of(slice_, chunks_, first + count - 1);
    return static_cast<double>(last.begin + last.size - shard_of(slice_, chunks_, first).begin);
  }
  // Messages that the run takes.
  int pieces(int count) const { return is_cut_ || count_ == 1 ? 1 : count; }
  double bytes(const Schedule& schedule, const Part& part) const {
    return elements(part.first, part.count) * element_bytes(schedule, part.area);
  }
  double element_bytes(const Schedule& schedule, int area) const {
    return static_cast<double>(accumulates(schedule, area) ? load_.accumulator_bytes : load_.element_bytes);
  }

 private:
  const Load& load_;
  const int chunks_;
  bool is_cut_ = true;
  std::size_t count_ = 1, slice_ = 0;
};

class Timing {
 public:
  Timing(const Shape& shape, const MachineCost& machine) : shape_(shape), machine_(machine) {
    std::map<int, std::vector<int>> hosts;
    for (int member = 0; member < shape.size; ++member) hosts[host_of(shape, member)].push_back(member);
    const auto count = static_cast<int>(hosts.size());
    const int wanted = std::clamp(count * kMostSeen / std::max(1, shape.size), std::min(3, count), count);
    int at = 0, taken = 0;
    for (const auto& [host, members] : hosts) {
      // Evenly, the first and the last among them.
      const bool takes = wanted == 1 ? at == 0 : at * (wanted - 1) >= taken * (count - 1);
      if (takes) ++taken, see(members);
      ++at;
    }
  }

  Estimate estimate(ScheduleMaker make, const Load& load) {
    std::vector<Schedule> schedules;
    for (const Seen& each : seen_) schedules.push_back(make(shape_, each.member));
    const SlicedLoad sliced(schedules.front(), load);
    double first = 0;
    std::vector<Work> all(seen_.size()), round(seen_.size());
    for (std::size_t r = 0; r < schedules.front().rounds.size(); ++r) {
      Path longest;
      for (std::size_t i = 0; i < seen_.size(); ++i) {
        round[i] = work(schedules[i], schedules[i].rounds[r], sliced, longest);
        all[i] += round[i];
      }
      first += std::max(busiest(round), longest.work) + longest.latency;
    }
    const auto slots = static_cast<double>(load.slots > 0 ? load.slots : slots_of(schedules, sliced));
    const auto slices = static_cast<double>(sliced.count());
    return {first + (slices - 1) * std::max(busiest(all), first / slots), slices * busiest_cores(all)};
  }

 private:
  struct Seen {
    int member;
    std::size_t host;
    int place;      // in its host
    double weight;  // members of the host for which it stands
  };

  void see(const std::vector<int>& members) {
    const std::size_t most = std::min<std::size_t>(members.size(), kMostSeen);
    for (std::size_t i = 0; i < most; ++i) {
      const std::size_t at = i * members.size() / most;
      const double weight = static_cast<double>(members.size()) / static_cast<double>(most);
      seen_.push_back({members[at], hosts_, static_cast<int>(at), weight});
    }
    ++hosts_;
  }

  Work work(const Schedule& schedule, const Round& round, const SlicedLoad& load, Path& longest) const {
    Work work;
    const auto move = [&](const Message& message, double Work::*wire, double Work::*rail) {
      const double bytes = load.bytes(schedule, message.part);
      if (bytes == 0) return;
      const bool is_near = host_of(shape_, message.peer) == host_of(shape_, schedule.member);
      const LinkCost& link = is_near ? machine_.inside : machine_.between;
      work.core += load.pieces(message.part.count) * link.message + bytes * link.byte;
      work.*(is_near ? wire : rail) += bytes * link.wire_byte;
      // The receiver begins with the first bytes while the sender is at the next ones.
      longest.work = std::max(longest.work, link.message + (bytes + std::min(bytes, kAtOnce)) * link.byte);
      longest.latency = std::max(longest.latency, link.latency);
    };
    for (const Message& message : round.send) move(message, &Work::out, &Work::rail_out);
    for (const Message& message : round.receive) move(message, &Work::in, &Work::rail_in);
    for (const Combine& combine : round.combine) {
      const double elements = load.elements(combine.to.first, combine.to.count);
      for (const int step : combine.tree) {
        if (step != Combine::kJoin) work.core += elements * load.element_bytes(schedule, step) * machine_.sum_byte;
      }
    }
    return work;
  }

  // What the busiest rank, wire, rail or host needs.
  double busiest(const std::vector<Work>& works) const {
    double most = busiest_cores(works);
    for (std::size_t begin = 0, end = 0; begin < works.size(); begin = end) {
      std::map<int, Work> rails;
      for (; end < works.size() && seen_[end].host == seen_[begin].host; ++end) {
        const Work& each = works[end];
        most = std::max({most, each.out, each.in});
        Work& rail = rails[machine_.rails > 0 ? seen_[end].place % machine_.rails : seen_[end].place];
        rail.rail_out += each.rail_out, rail.rail_in += each.rail_in;
      }
      for (const auto& [number, rail] : rails) most = std::max({most, rail.rail_out, rail.rail_in});
    }
    return most;
  }

  // Of all hosts the most, of each of its cores.
  double busiest_cores(const std::vector<Work>& works) const {
    double most = 0;
    std::vector<double> hosts(hosts_);
    for (std::size_t i = 0; i < works.size(); ++i) {
      const double shared = machine_.cores > 0 ? seen_[i].weight / machine_.cores : 0;
      most = std::max({most, works[i].core, hosts[seen_[i].host] += works[i].core * shared});
    }
    return most;
  }

  std::size_t slots_of(const std::vector<Schedule>& schedules, const SlicedLoad& load) const {
    double most = 1;
    for (const Schedule& schedule : schedules) {
      double bytes = 0;
      for (std::size_t i = 0; i < schedule.scratch.size(); ++i) {
        const Scratch& scratch = schedule.scratch[i];
        const int area = Schedule::kFirstScratch + static_cast<int>(i);
        bytes += load.elements(std::max(0, scratch.base), scratch.chunks) * load.element_bytes(schedule, area);
      }
      most = std::max(most, bytes);
    }
    const std::size_t affordable = std::max<std::size_t>(2, static_cast<std::size_t>(kSlotsBytes / most));
    return std::min(affordable, hosts_ > 1 ? kSlots : kSlotsOfHost);
  }

  const Shape& shape_;
  const MachineCost& machine_;
  std::vector<Seen> seen_;
  std::size_t hosts_ = 0;
};

}  // namespace

MachineCost usual_costs() {
  MachineCost machine;
  machine.inside = {8e-6, 3e-6, 0.12e-9, 0};
  machine.between = {10e-6, 3e-6, 0.12e-9, 0.4e-9};
  machine.sum_byte = 0.06e-9;
  return machine;
}

Estimate estimate(const Shape& shape, ScheduleMaker make, const Load& load, const MachineCost& machine) {
  MachineCost costs = machine;
  const double beyond =
      1 - std::min(1.0, machine.cache_bytes / static_cast<double>(std::max<std::size_t>(1, load.bytes)));
  const double slower = 1 + (machine.beyond_cache - 1) * beyond;
  for (double* cost : {&costs.inside.byte, &costs.between.byte}) *cost *= slower;
  costs.sum_byte *= 1 + (machine.sum_beyond_cache - 1) * beyond;
  return Timing(shape, costs).estimate(make, load);
}

}  // namespace horo
