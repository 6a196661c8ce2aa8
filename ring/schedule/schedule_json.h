// Schedules as JSON, for schedules that are written by hand or by a solver. They are proven before they run.
//
//   {"name": "mine", "kind": "all_reduce", "order": "canonical", "root": 0, "chunks": 2, "members": [
//     {"scratch": [{"chunks": 1, "accumulates": false, "base": -1}],
//      "rounds": [{"send":    [{"peer": 1, "area": 0, "first": 1, "count": 1}],
//                  "receive": [{"peer": 1, "area": 2, "first": 0, "count": 1}],
//                  "combine": [{"area": 1, "first": 0, "count": 1, "tree": [0, 2, -1]}]}, ...]}, ...]}
//
// The keys are the members of the structs in ring/schedule/schedule.h. Areas are 0 (in), 1 (out) and scratch from 2 on.
// A tree is in postfix order, -1 joins. A key may be left out if its member has a default there, except area, first and
// chunks of the schedule.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ring/schedule/schedule.h"

namespace horo {

// One schedule per member, for a shape in which all members contribute, with the ids 0, 1, 2 ...
struct GivenSchedules {
  Shape shape;
  std::vector<Schedule> schedules;
};

std::string to_json(const GivenSchedules& given);

// Reads and proves schedules. Throws std::invalid_argument that begins with `origin` (the name of the file) and has the
// path to the value and what was expected, or the message of the proof.
GivenSchedules schedules_from_json(std::string_view text, const std::string& origin);

// The same for a file of at most 64 MiB. Blocks.
GivenSchedules read_schedules(const std::string& path);

}  // namespace horo
