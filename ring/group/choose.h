// The choice of the schedule that runs a collective.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "ring/group.h"
#include "ring/schedule/schedule.h"
#include "ring/schedule/schedule_json.h"
#include "ring/schedule/schedule_time.h"

namespace horo {

// The name of a collective that is more than one schedule (ring/group/two_level.h). It is taken before any schedule is
// priced: it sends nothing inside a host, and between hosts no schedule sends less.
inline constexpr const char* kTwoLevel = "two-level";

// The algorithms that HORO_ALGORITHMS selects in place of the cheapest one, by kind.
struct AlgorithmOverrides {
  std::map<CollectiveKind, std::string> names;  // of all_schedule_makers() ("ring", "tree" ...), or kTwoLevel
  std::map<CollectiveKind, GivenSchedules> files;

  // Whether shared memory may run the kind: no override asks for a schedule over messages.
  bool allow_shm(CollectiveKind kind) const;
};

// Parses "all_reduce=tree,broadcast=@mine.json"; reads and proves the files. Throws std::invalid_argument naming
// HORO_ALGORITHMS, the wrong word and the valid ones.
AlgorithmOverrides read_overrides(const std::string& text);

// The properties of a collective that determine its schedule. `hosts`: by member.
Shape shape_of(const Collective& collective, int size, const std::vector<int>& hosts);

// The inputs of the price of an algorithm; equal on all members.
struct Prices {
  MachineCost machine = usual_costs();
  std::size_t segment_bytes = 256 << 10;
};

// Every maker that may run the collective on `bytes` bytes (see Load), with its expected time; the first one is to be
// chosen. All of them sum in the order that the collective asks for, if all members contribute.
struct Priced {
  const NamedMaker* maker;
  double seconds;
  double cost;  // the seconds, and a share of the CPU work where ranks share cores
};
std::vector<Priced> price(const Collective& collective, const Shape& shape, std::size_t bytes, const Prices& prices);

// The number of bytes for which a collective is priced: its own, rounded up, so that similar lengths share a choice.
std::size_t priced_bytes(const Collective& collective, int size);

// The override's maker, if its sums come in the order that the collective asks for; else the cheapest maker with that
// property. Equal on all members.
const NamedMaker& choose(const Collective& collective, const Shape& shape, const AlgorithmOverrides& overrides,
                         const Prices& prices);

// The schedules of the override's file, by member, if they fit: the same number of members, the same root, all members
// contribute in order of ids, and the sums come in the order that the collective asks for. Else null: see choose().
const std::vector<Schedule>* given_schedules_for(const Collective& collective, const Shape& shape,
                                                 const AlgorithmOverrides& overrides);

}  // namespace horo
