// Prices the candidates by the time that their schedules would take on this machine (schedule_time.h).

#include "ring/group/choose.h"

#include <algorithm>
#include <bit>
#include <map>
#include <numeric>
#include <set>
#include <sstream>
#include <stdexcept>

#include "horo/base/check.h"
#include "horo/base/say.h"
#include "ring/algorithms/messages.h"
#include "ring/reduce/custom_op.h"
#include "ring/reduce/reduce.h"
#include "ring/schedule/schedule_parts.h"

namespace horo {
namespace {

constexpr int kOneShotMembers = 32;  // a one-shot exchange of more members needs too many messages and too much memory
// A later candidate is preferred only if its cost is at most this fraction of the earlier one's, because estimates are
// not more accurate.
constexpr double kClear = 0.92;
// Where ranks share cores, a second of CPU work counts half a second more. It delays the messages of another rank, in
// an order that no schedule describes, or the user's own computation.
constexpr double kWorkCounts = 0.5;

const NamedMaker* find(CollectiveKind kind, const std::string& name) {
  for (const NamedMaker& maker : all_schedule_makers()) {
    if (maker.kind == kind && name == maker.name) return &maker;
  }
  return nullptr;
}

bool has_two_level(CollectiveKind kind) {
  return kind == CollectiveKind::kAllReduce || kind == CollectiveKind::kAllGather ||
         kind == CollectiveKind::kReduceScatter;
}

std::string names_for(CollectiveKind kind) {
  std::string names;
  for (const NamedMaker& maker : all_schedule_makers()) {
    if (maker.kind == kind) names += (names.empty() ? "" : ", ") + std::string(maker.name);
  }
  return names + (has_two_level(kind) ? ", " + std::string(kTwoLevel) : "");
}

CollectiveKind kind_named(const std::string& word) {
  for (const NamedMaker& maker : all_schedule_makers()) {
    if (word == name_of(maker.kind)) return maker.kind;
  }
  throw std::invalid_argument(say("HORO_ALGORITHMS: \"", word, "\" is no collective that has algorithms"));
}

// Several hosts, at least one of them with several members.
bool has_levels(const Shape& shape) {
  const std::set<int> hosts(shape.hosts.begin(), shape.hosts.end());
  return hosts.size() > 1 && hosts.size() < static_cast<std::size_t>(shape.size);
}

bool is_whole(const Collective& c) {
  return c.custom != nullptr && c.custom->whole;
}

// Custom operations are always canonical, because they need not commute.
bool may_be_fast(const Collective& c) {
  return c.order == Order::kFast && c.op != ReduceOp::kCustom;
}

// Whether some host has more members than cores.
bool is_crowded(const Shape& shape, const MachineCost& machine) {
  std::map<int, int> members;
  int most = 0;
  for (int member = 0; member < shape.size; ++member) most = std::max(most, ++members[host_of(shape, member)]);
  return machine.cores > 0 && most > machine.cores;
}

// In order of preference, by which ties are decided (kClear): algorithms with fewer rounds come first. Where ranks
// share cores, one works while another waits, so fewer messages matter more and the tree comes before the one-shot
// exchange.
std::vector<const char*> all_reduce_candidates(const Collective& c, const Shape& shape, const MachineCost& machine) {
  const bool may_cut = !is_whole(c), crowded = is_crowded(shape, machine);
  std::vector<const char*> names;
  const auto add_if = [&](bool holds, const char* name) {
    if (holds) names.push_back(name);
  };
  add_if(may_be_fast(c) && shape.size > 1, has_levels(shape) ? "hosts-first" : "ring");
  add_if(may_cut && has_levels(shape), "hierarchical");
  add_if(may_cut, "direct");
  add_if(crowded, "tree");
  add_if(shape.size > 1 && shape.size <= kOneShotMembers, "one-shot");
  add_if(!crowded, "tree");
  add_if(may_cut, "halving-doubling");
  return names;
}

// In order of preference, as above.
std::vector<const char*> candidates(const Collective& c, const Shape& shape, const MachineCost& machine) {
  switch (c.kind) {
    case CollectiveKind::kAllReduce:
      return all_reduce_candidates(c, shape, machine);
    case CollectiveKind::kReduceScatter:
      if (is_whole(c)) return {"tree"};
      if (may_be_fast(c)) return {"direct", "log-step", "tree"};
      return {"direct", "tree"};
    case CollectiveKind::kBroadcast:
      return {"tree", "scatter"};
    case CollectiveKind::kReduce:
      return {"tree"};
    case CollectiveKind::kAllGather:
    case CollectiveKind::kAllToAll:
      return {"direct", "log-step"};
    default:
      return {"direct"};
  }
}

// Whether the sums of a member's schedule come in the order, and of whole tensors, as the collective asks for.
bool suits(const Collective& c, const Schedule& schedule) {
  return (may_be_fast(c) || schedule.order == Order::kCanonical) && (!is_whole(c) || combines_whole(schedule));
}

bool suits(const Collective& c, const Shape& shape, ScheduleMaker make) {
  const int members = is_whole(c) ? shape.size : 1;  // the order is equal on all members
  for (int member = 0; member < members; ++member) {
    if (!suits(c, make(shape, member))) return false;
  }
  return true;
}

}  // namespace

bool AlgorithmOverrides::allow_shm(CollectiveKind kind) const {
  const auto name = names.find(kind);
  return !files.contains(kind) && (name == names.end() || name->second == kTwoLevel);
}

AlgorithmOverrides read_overrides(const std::string& text) {
  AlgorithmOverrides overrides;
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) {
    const std::size_t equals = part.find('=');
    if (equals == std::string::npos) {
      throw std::invalid_argument(say("HORO_ALGORITHMS: \"", part, "\", expected collective=algorithm"));
    }
    const CollectiveKind kind = kind_named(part.substr(0, equals));
    const std::string name = part.substr(equals + 1);
    if (name.starts_with("@")) {
      const GivenSchedules& given = overrides.files[kind] = read_schedules(name.substr(1));
      if (given.shape.kind == kind) continue;
      throw std::invalid_argument(say("HORO_ALGORITHMS: ", name.substr(1), " has schedules for ",
                                      name_of(given.shape.kind), ", not for ", name_of(kind)));
    }
    const bool is_two_level = has_two_level(kind) && name == kTwoLevel;
    if (find(kind, name) == nullptr && !is_two_level) {
      throw std::invalid_argument(
          say("HORO_ALGORITHMS: ", name_of(kind), " has no algorithm \"", name, "\"; it has ", names_for(kind)));
    }
    overrides.names[kind] = name;
  }
  return overrides;
}

Shape shape_of(const Collective& collective, int size, const std::vector<int>& hosts) {
  Shape shape;
  shape.kind = collective.kind;
  shape.size = size;
  shape.root = collective.root;
  shape.hosts = hosts;
  if (reduces(collective.kind)) shape.contributors = collective.contributors;
  return shape;
}

// Rounds up in four steps from one power of two to the next.
std::size_t priced_bytes(const Collective& c, int size) {
  const std::size_t all = std::accumulate(c.counts.begin(), c.counts.end(), std::size_t{0}) * size_of(c.dtype);
  const std::size_t bytes = c.kind == CollectiveKind::kAllToAll ? all / static_cast<std::size_t>(size) : all;
  if (bytes <= 8) return 8;
  const std::size_t step = std::bit_floor(bytes - 1) / 4;
  return (bytes + step - 1) / step * step;
}

// Prices a collective to which all members contribute and whose root is member 0, so that the result can be reused.
std::vector<Priced> price(const Collective& c, const Shape& of, std::size_t bytes, const Prices& prices) {
  Shape shape{of.kind, of.size, 0, {}, of.hosts};
  for (int member = 0; member < of.size && reduces(of.kind); ++member) shape.contributors.push_back(member);
  const std::vector<const char*> names = candidates(c, shape, prices.machine);
  const Load load{bytes, size_of(c.dtype), accumulator_bytes(c.dtype, c.op), prices.segment_bytes};
  const double work_counts = is_crowded(shape, prices.machine) ? kWorkCounts : 0;
  std::vector<Priced> priced;
  for (const char* name : names) {
    const NamedMaker* maker = find(c.kind, name);
    HORO_CHECK(maker != nullptr);
    const Estimate all = names.size() > 1 ? estimate(shape, maker->make, load, prices.machine) : Estimate{};
    priced.push_back({maker, all.seconds, all.seconds + work_counts * all.work});
  }
  std::size_t best = 0;
  for (std::size_t i = 1; i < priced.size(); ++i) {
    if (priced[i].cost < kClear * priced[best].cost) best = i;
  }
  std::swap(priced[0], priced[best]);
  return priced;
}

const NamedMaker& choose(const Collective& collective, const Shape& shape, const AlgorithmOverrides& overrides,
                         const Prices& prices) {
  const auto name = overrides.names.find(collective.kind);
  if (const NamedMaker* asked = name == overrides.names.end() ? nullptr : find(collective.kind, name->second)) {
    if (suits(collective, shape, asked->make)) return *asked;
  }
  // A priced candidate may still not fit: if some members are absent, halving-doubling may not sum in canonical order.
  // Then the cheapest of the other candidates is chosen.
  const Priced* best = nullptr;
  const std::vector<Priced> priced = price(collective, shape, priced_bytes(collective, shape.size), prices);
  for (const Priced& one : priced) {
    if (best != nullptr && (best == &priced.front() || one.cost >= best->cost)) continue;
    if (suits(collective, shape, one.maker->make)) best = &one;
  }
  HORO_CHECK(best != nullptr);
  return *best->maker;
}

const std::vector<Schedule>* given_schedules_for(const Collective& collective, const Shape& shape,
                                                 const AlgorithmOverrides& overrides) {
  const auto found = overrides.files.find(collective.kind);
  if (found == overrides.files.end()) return nullptr;
  const GivenSchedules& given = found->second;
  if (given.shape.size != shape.size || given.shape.root != shape.root) return nullptr;
  const auto fits = [&](const Schedule& schedule) { return suits(collective, schedule); };
  if (!std::all_of(given.schedules.begin(), given.schedules.end(), fits)) return nullptr;
  for (std::size_t i = 0; i < shape.contributors.size(); ++i) {
    if (shape.contributors[i] != static_cast<std::int64_t>(i)) return nullptr;
  }
  return &given.schedules;
}

}  // namespace horo
