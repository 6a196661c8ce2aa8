// Which schedule runs a collective.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "ring/group.h"
#include "ring/schedule/schedule.h"
#include "ring/schedule/schedule_json.h"
#include "ring/schedule/schedule_time.h"

namespace horo {

// An all_reduce that is more than one schedule (ring/group/two_level.h): it goes before all of these where it can,
// because inside a host nothing travels, and between hosts no more than one rank per host would send.
inline constexpr const char* kTwoLevel = "two-level";

// What is wished for instead of the rules, by kind.
struct AlgorithmOverrides {
  std::map<CollectiveKind, std::string> names;  // of makers ("ring", "tree" ..., all_schedule_makers), or kTwoLevel
  std::map<CollectiveKind, GivenSchedules> files;

  // Nobody wants it by messages alone.
  bool allow_room(CollectiveKind kind) const;
};

// Reads "all_reduce=tree,broadcast=@mine.json"; files are read and proven. Throws std::invalid_argument naming
// HORO_ALGORITHMS, the word and what there is.
AlgorithmOverrides read_wishes(const std::string& text);

// What the schedule of a collective depends on, beside the members' hosts.
Shape shape_of(const Collective& collective, int size, const std::vector<int>& hosts);

// What algorithms are judged by; equal on all members.
struct Prices {
  MachineCost machine = usual_costs();
  std::size_t segment_bytes = 256 << 10;
};

// Every maker that may run the collective of `bytes` (see Load), and the seconds that it is expected to take; the one
// to take first. All of them sum in the order that the collective asks for.
struct Priced {
  const NamedMaker* maker;
  double seconds;
  double cost;  // the seconds, and where ranks share cores something for the work
};
std::vector<Priced> price(const Collective& collective, const Shape& shape, std::size_t bytes, const Prices& prices);

// The bytes for which a collective is priced: its own, or a little more, so that neighbours share a decision.
std::size_t priced_bytes(const Collective& collective, int size);

// The cheapest, or what is wished for: a wish is granted if its sums are in the order that the collective asks for. The
// same on all members: it looks only at what is equal on all of them.
const NamedMaker& choose(const Collective& collective, const Shape& shape, const AlgorithmOverrides& overrides,
                         const Prices& prices);

// The file's schedules, if there are any that fit: as many members, the same root, all contributing in order of ids,
// and an order of summation that will do. Null: choose().
const std::vector<Schedule>* given_for(const Collective& collective, const Shape& shape,
                                       const AlgorithmOverrides& overrides);

}  // namespace horo
