#include "ring/schedule/schedule_time.h"

#include <algorithm>
#include <map>

#include "horo/base/shard.h"
#include "ring/schedule/schedule_parts.h"

namespace horo {
namespace {

constexpr int kMostSampled = 32;    // members whose schedules are made; in larger groups they represent all
constexpr std::size_t kSlots = 16;  // as in schedule_run.cc
constexpr std::size_t kSlotsOfHost = 4;
constexpr std::size_t kSlotsBytes = 32 << 20;

constexpr double kAtOnce = 32 << 10;  // bytes that a core copies before the receiving core can begin

using Kind = CollectiveKind;

// Seconds of work that a rank causes, by resource.
struct Usage {
  double core = 0;
  double out = 0, in = 0;            // its wire inside the host
  double rail_out = 0, rail_in = 0;  // its rail to other hosts
  void operator+=(const Usage& other) {
    core += other.core;
    out += other.out, in += other.in;
    rail_out += other.rail_out, rail_in += other.rail_in;
  }
};

// The critical path of a round: its most expensive message from end to end.
struct CriticalPath {
  double work = 0;
  double latency = 0;
};

// The size of one slice.
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
  // Elements of a run of chunks in the slice.
  double elements(int first, int count) const {
    if (!is_cut_) return static_cast<double>(slice_) * count;
    const Shard last = shard_of(slice_, chunks_, first + count - 1);
    return static_cast<double>(last.begin + last.size - shard_of(slice_, chunks_, first).begin);
  }
  // The number of messages for a run of chunks.
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
    const int wanted = std::clamp(count * kMostSampled / std::max(1, shape.size), std::min(3, count), count);
    int at = 0, taken = 0;
    for (const auto& [host, members] : hosts) {
      // Takes `wanted` hosts at even distances, the first and the last included.
      const bool takes = wanted == 1 ? at == 0 : at * (wanted - 1) >= taken * (count - 1);
      if (takes) ++taken, add_host(members);
      ++at;
    }
  }

  Estimate estimate(ScheduleMaker make, const Load& load) {
    std::vector<Schedule> schedules;
    for (const Sampled& each : sampled_) schedules.push_back(make(shape_, each.member));
    const SlicedLoad sliced(schedules.front(), load);
    double first = 0;
    std::vector<Usage> all(sampled_.size()), round(sampled_.size());
    for (std::size_t r = 0; r < schedules.front().rounds.size(); ++r) {
      CriticalPath longest;
      for (std::size_t i = 0; i < sampled_.size(); ++i) {
        round[i] = usage_of(schedules[i], schedules[i].rounds[r], sliced, longest);
        all[i] += round[i];
      }
      first += std::max(busiest(round), longest.work) + longest.latency;
    }
    const auto slots = static_cast<double>(load.slots > 0 ? load.slots : slots_of(schedules, sliced));
    const auto slices = static_cast<double>(sliced.count());
    return {first + (slices - 1) * std::max(busiest(all), first / slots), slices * busiest_cores(all)};
  }

 private:
  struct Sampled {
    int member;
    std::size_t host;
    int place;      // on its host
    double weight;  // members of the host that it represents
  };

  void add_host(const std::vector<int>& members) {
    const std::size_t most = std::min<std::size_t>(members.size(), kMostSampled);
    for (std::size_t i = 0; i < most; ++i) {
      const std::size_t at = i * members.size() / most;
      const double weight = static_cast<double>(members.size()) / static_cast<double>(most);
      sampled_.push_back({members[at], hosts_, static_cast<int>(at), weight});
    }
    ++hosts_;
  }

  Usage usage_of(const Schedule& schedule, const Round& round, const SlicedLoad& load, CriticalPath& longest) const {
    Usage usage;
    const auto move = [&](const Message& message, double Usage::*wire, double Usage::*rail) {
      const double bytes = load.bytes(schedule, message.part);
      if (bytes == 0) return;
      const bool is_near = host_of(shape_, message.peer) == host_of(shape_, schedule.member);
      const LinkCost& link = is_near ? machine_.inside : machine_.between;
      usage.core += load.pieces(message.part.count) * link.message + bytes * link.byte;
      usage.*(is_near ? wire : rail) += bytes * link.wire_byte;
      // The receiver processes the first bytes while the sender copies the next ones.
      longest.work = std::max(longest.work, link.message + (bytes + std::min(bytes, kAtOnce)) * link.byte);
      longest.latency = std::max(longest.latency, link.latency);
    };
    for (const Message& message : round.send) move(message, &Usage::out, &Usage::rail_out);
    for (const Message& message : round.receive) move(message, &Usage::in, &Usage::rail_in);
    for (const Combine& combine : round.combine) {
      const double elements = load.elements(combine.to.first, combine.to.count);
      for (const int step : combine.tree) {
        if (step != Combine::kJoin) usage.core += elements * load.element_bytes(schedule, step) * machine_.sum_byte;
      }
    }
    return usage;
  }

  // The seconds of the busiest rank, wire, rail or host.
  double busiest(const std::vector<Usage>& usages) const {
    double most = busiest_cores(usages);
    for (std::size_t begin = 0, end = 0; begin < usages.size(); begin = end) {
      std::map<int, Usage> rails;
      for (; end < usages.size() && sampled_[end].host == sampled_[begin].host; ++end) {
        const Usage& each = usages[end];
        most = std::max({most, each.out, each.in});
        Usage& rail = rails[machine_.rails > 0 ? sampled_[end].place % machine_.rails : sampled_[end].place];
        rail.rail_out += each.rail_out, rail.rail_in += each.rail_in;
      }
      for (const auto& [number, rail] : rails) most = std::max({most, rail.rail_out, rail.rail_in});
    }
    return most;
  }

  // The seconds of the busiest rank or, per core, of the busiest host.
  double busiest_cores(const std::vector<Usage>& usages) const {
    double most = 0;
    std::vector<double> hosts(hosts_);
    for (std::size_t i = 0; i < usages.size(); ++i) {
      const double shared = machine_.cores > 0 ? sampled_[i].weight / machine_.cores : 0;
      most = std::max({most, usages[i].core, hosts[sampled_[i].host] += usages[i].core * shared});
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
  std::vector<Sampled> sampled_;
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
