// Random programs: correct and incorrect calls of several ranks on three overlapping process sets, in a different order
// on each rank. Plain data, drawn from a seed. run_program.h runs programs and checks every result.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "horo/base/tensor_spec.h"

namespace horo::proof {

// A mistake of one member in an item.
enum class Mistake {
  kNone,
  kShape,      // submits another shape than the others
  kType,       // another type
  kRoot,       // another root
  kOperation,  // another operation
  kMissing,    // never submits it
  kJoined,     // has joined; only all_reduce and barrier proceed without it
  kOutside,    // a rank outside of the set submits the item too, and is refused at the call
};
const char* name_of(Mistake mistake);

// One collective, or one unit of several.
struct Item {
  std::string name;       // empty: an unnamed operation
  std::uint32_t set = 0;  // index into Program::sets
  CollectiveKind kind = CollectiveKind::kAllReduce;
  bool stepwise = false;
  bool averages = false;
  bool is_coded = false;  // all_reduce: as fp16, in which these values and sums are exact
  int count = 1;          // elements; of kinds with parts: rows of a part
  int root = 0;           // inside the set
  int peer = -1;
  int unit = 0;             // tensors of a unit; 0: not a unit
  std::vector<int> absent;  // members without a value
  Mistake mistake = Mistake::kNone;
  int culprit = 0;  // member; of kOutside: a rank of the world
};

// All ranks submit the items of the phase, each rank in its own order, then wait for them in another order.
struct Phase {
  std::vector<Item> items;
  // Two items that all members run one after the other, one member in reverse order. Each item either has a correct
  // result or fails with a message that names the missing ranks.
  bool crossed = false;
  // By set: members that join before they submit any item of the phase; the others join at its end.
  std::vector<std::vector<int>> joining;
};

struct Program {
  std::uint64_t seed = 0;
  int size = 2;
  std::vector<std::vector<int>> sets;  // ranks; the first is the world
  std::vector<Phase> phases;
  bool removes_sets = false;
  bool over_tcp = false;

  bool stalls() const;  // some item can end only at the stall limit
};

Program draw_program(std::uint64_t seed);
std::string describe(const Program& program);
std::string describe(const Item& item);

}  // namespace horo::proof
