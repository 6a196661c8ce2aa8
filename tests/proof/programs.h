// Random programs: what the callers of several ranks do with three overlapping process sets, in an order of their own,
// rightly and wrongly. Plain data, drawn from a seed; perform.h runs it and judges every end.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "horo/base/tensor_spec.h"

namespace horo::proof {

// What goes wrong with an item, by one member.
enum class Mistake {
  kNone,
  kShape,      // says another shape than the others
  kType,       // another type
  kRoot,       // another root
  kOperation,  // another operation
  kMissing,    // never submits it
  kJoined,     // has joined: only all_reduce and barrier go on without it
  kOutside,    // no mistake of a member: a rank outside of the set submits it as well, and is refused at the call
};
const char* name_of(Mistake mistake);

// One collective or message, or one unit of several.
struct Item {
  std::string name;       // empty: an operation without a name
  std::uint32_t set = 0;  // index into Program::sets
  CollectiveKind kind = CollectiveKind::kAllReduce;
  bool stepwise = false;
  bool averages = false;
  bool is_coded = false;  // all_reduce: as fp16, which holds these values and sums
  int count = 1;          // elements; rows of a part for those that move parts
  int root = 0;           // inside the set
  int peer = -1;
  int unit = 0;             // tensors of a unit; 0: it is none
  std::vector<int> absent;  // members without a value
  Mistake mistake = Mistake::kNone;
  int culprit = 0;  // member; of kOutside: a rank of the world
};

// All ranks submit the phase's items, each in an order of its own, then wait for them in another.
struct Phase {
  std::vector<Item> items;
  // Two items that one member runs one after the other in the other order than all others, who wait between them too:
  // each ends right, or says who was missing.
  bool crossed = false;
  // Members that join before they submit anything of the phase, by set; the others join after it.
  std::vector<std::vector<int>> joining;
};

struct Program {
  std::uint64_t seed = 0;
  int size = 2;
  std::vector<std::vector<int>> sets;  // ranks; the first is the world
  std::vector<Phase> phases;
  bool removes_sets = false;
  bool over_tcp = false;

  bool stalls() const;  // something in it can only end at the limit
};

Program draw_program(std::uint64_t seed);
std::string describe(const Program& program);
std::string describe(const Item& item);

}  // namespace horo::proof
