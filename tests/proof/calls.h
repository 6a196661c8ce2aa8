// An item of a program as one member submits it: spec, buffers, and what it must end with.
#pragma once

#include <string>
#include <vector>

#include "horo/session.h"
#include "tests/proof/programs.h"

namespace horo::proof {

// Buffers stay where they are while the works are in flight.
struct Call {
  TensorSpec spec;
  Submission submission;
  std::vector<float> in;
  std::vector<float> out;
  std::vector<float> expected;  // of out, or of the work's own result
  bool is_varying = false;      // the result is the work's own
  bool is_absent = false;       // nobody has a value
};

// Whom an item concerns: members of its set, or sender and receiver.
bool takes_part(const Item& item, int member);

// `joined`: members that have. `number`: the set's in the session; `tensor`: of the unit, from 0.
struct Seating {
  int member = 0;
  int members = 1;
  std::uint32_t number = 0;
  std::vector<int> joined = {};
};
Call make_call(const Item& item, const Seating& seating, int tensor);

// The item as its culprit has it.
Item with_mistake(const Item& item, int members);

}  // namespace horo::proof
