// Wire format of numbers and lists that the messages of coordinators share.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "controller/id_set.h"
#include "controller/messages.h"
#include "controller/spec_wire.h"
#include "horo/base/error.h"
#include "horo/base/wire.h"

namespace horo {

// Throws ProtocolError for a number that is not below the limit.
inline std::uint32_t read_below(ByteReader& in, std::uint32_t limit, const char* what) {
  const std::uint32_t value = in.u32();
  if (value < limit) return value;
  throw ProtocolError(std::string(what) + " " + std::to_string(value) + ", less than " + std::to_string(limit) +
                      " expected");
}

inline PlanId read_plan(ByteReader& in, const CoordinatorConfig& config) {
  const PlanId plan = read_below(in, plan_limit(config), "plan");
  if (plan == 0) throw ProtocolError("plan 0, but plans are numbered from 1");
  return plan;
}

template <class Integer>
void write_list(ByteWriter& out, const std::vector<Integer>& list) {
  out.u32(static_cast<std::uint32_t>(list.size()));
  for (const Integer value : list) out.u32(static_cast<std::uint32_t>(value));
}

// Throws ProtocolError unless the list ascends below the limit.
template <class Integer>
std::vector<Integer> read_ascending(ByteReader& in, std::uint32_t limit, const char* what) {
  std::vector<Integer> list(in.count(4));
  for (Integer& value : list) value = static_cast<Integer>(read_below(in, limit, what));
  const auto stays = std::adjacent_find(list.begin(), list.end(), [](Integer a, Integer b) { return a >= b; });
  if (stays != list.end()) throw ProtocolError(std::string("a list that does not ascend: ") + what);
  return list;
}

}  // namespace horo
