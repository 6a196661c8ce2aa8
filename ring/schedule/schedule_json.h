// Schedules as JSON, so that somebody else's can be tried: written by hand or by a solver, proven here before they run.
//
//   {"name": "mine", "kind": "all_reduce", "order": "canonical", "root": 0, "chunks": 2, "members": [
//     {"scratch": [{"chunks": 1, "accumulates": false, "base": -1}],
//      "rounds": [{"send":    [{"peer": 1, "area": 0, "first": 1, "count": 1}],
//                  "receive": [{"peer": 1, "area": 2, "first": 0, "count": 1}],
//                  "combine": [{"area": 1, "first": 0, "count": 1, "tree": [0, 2, -1]}]}, ...]}, ...]}
//
// The words are those of ring/schedule/schedule.h: areas 0 (in), 1 (out) and scratch from 2 on; a tree is in postfix
// order, -1 joins. What has a default there may be left out.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ring/schedule/schedule.h"

namespace horo {

// One schedule per member, for a problem whose members all contribute under the ids 0, 1, 2 ...
struct GivenSchedules {
  Shape shape;
  std::vector<Schedule> schedules;
};

std::string to_json(const GivenSchedules& given);

// Reads and proves them. Throws std::invalid_argument: `origin` (a file's name), then member, round and step, and what
// was expected; or what the proof says.
GivenSchedules schedules_from_json(std::string_view text, const std::string& origin);

// The same from a file of at most 64 MiB.
GivenSchedules read_schedules(const std::string& path);

}  // namespace horo
