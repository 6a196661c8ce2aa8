// An item of a program as one member submits it: spec, buffers and expected result.
#pragma once

#include <string>
#include <vector>

#include "horo/session.h"
#include "tests/proof/programs.h"

namespace horo::proof {

// Moving a Call does not move its buffers, which works in flight use.
struct Call {
  TensorSpec spec;
  Submission submission;
  std::vector<float> in;
  std::vector<float> out;
  std::vector<float> expected;  // of out, or of the work's result if is_varying
  bool is_varying = false;      // the result is in the work's Outcome
  bool is_absent = false;       // no member has a value
};

// Whether the member submits the item: all members of the set do, of a send_recv the sender and the receiver.
bool takes_part(const Item& item, int member);

// A member of a set.
struct Membership {
  int member = 0;
  int members = 1;
  std::uint32_t number = 0;      // of the set in the session
  std::vector<int> joined = {};  // members that have joined
};
// `tensor`: index in the unit, or 0.
Call make_call(const Item& item, const Membership& membership, int tensor);

// The item as the member with the mistake submits it.
Item with_mistake(const Item& item, int members);

}  // namespace horo::proof
