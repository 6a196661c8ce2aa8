// Which schedule runs a collective.
#pragma once

#include <map>
#include <string>

#include "ring/group.h"
#include "ring/schedule.h"

namespace horo {

// Wishes by kind: "ring", "halving-doubling" ... (all_schedule_makers).
using AlgorithmWishes = std::map<CollectiveKind, std::string>;

// Reads "all_reduce=tree,broadcast=scatter". Throws std::invalid_argument naming HORO_ALGORITHMS, the word and what
// there is.
AlgorithmWishes read_wishes(const std::string& text);

// What the schedule of a collective depends on, beside the members' hosts.
Shape shape_of(const Collective& collective, int size, const std::vector<int>& hosts);

// The same on all members: it looks only at what is equal on all of them. A wish is granted if its sums are in the
// order that the collective asks for.
const NamedMaker& choose(const Collective& collective, const Shape& shape, const AlgorithmWishes& wishes);

}  // namespace horo
