// Rules of thumb: one message time for tiny tensors, as few bytes over each wire as possible for the others. The limits
// are where the one-shot exchange gave way to the direct one on loopback, where processors are the limit.

#include "ring/choose.h"

#include <algorithm>
#include <set>
#include <sstream>
#include <stdexcept>

#include "horo/base/check.h"
#include "ring/custom_op.h"
#include "ring/host_algorithms.h"
#include "ring/say.h"
#include "ring/schedule_parts.h"

namespace horo {
namespace {

constexpr std::size_t kOneShotBytesOfTwo = 512 << 10;
constexpr std::size_t kTreeBroadcastBytes = 32 << 10;
constexpr std::size_t kOneShotBytesOfMany = 4 << 10;
constexpr int kOneShotMembers = 32;

const NamedMaker* find(CollectiveKind kind, const std::string& name) {
  for (const NamedMaker& maker : all_schedule_makers()) {
    if (maker.kind == kind && name == maker.name) return &maker;
  }
  return nullptr;
}

std::string names_for(CollectiveKind kind) {
  std::string names;
  for (const NamedMaker& maker : all_schedule_makers()) {
    if (maker.kind == kind) names += (names.empty() ? "" : ", ") + std::string(maker.name);
  }
  return names;
}

CollectiveKind kind_named(const std::string& word) {
  for (const NamedMaker& maker : all_schedule_makers()) {
    if (word == name_of(maker.kind)) return maker.kind;
  }
  throw std::invalid_argument(say("HORO_ALGORITHMS: \"", word, "\" is no collective that has algorithms"));
}

bool one_shot_pays(const Collective& c, int size) {
  if (size < 2 || size > kOneShotMembers) return false;
  return c.counts[0] * size_of(c.dtype) <= (size == 2 ? kOneShotBytesOfTwo : kOneShotBytesOfMany);
}

// Several hosts, at least one of them with several members.
bool has_levels(const Shape& shape) {
  const std::set<int> hosts(shape.hosts.begin(), shape.hosts.end());
  return hosts.size() > 1 && hosts.size() < static_cast<std::size_t>(shape.size);
}

bool is_whole(const Collective& c) {
  return c.custom != nullptr && c.custom->whole;
}

// An operation of the user's own is always canonical: it need not commute.
bool may_be_fast(const Collective& c) {
  return c.order == Order::kFast && c.op != ReduceOp::kCustom;
}

const char* by_rule(const Collective& c, const Shape& shape) {
  switch (c.kind) {
    case CollectiveKind::kAllReduce:
      if (may_be_fast(c) && shape.size > 1) return has_levels(shape) ? "hosts-first" : "ring";
      if (one_shot_pays(c, shape.size)) return "one-shot";
      if (is_whole(c)) return "tree";
      return has_levels(shape) ? "hierarchical" : "direct";
    case CollectiveKind::kBroadcast:
      return shape.size > 2 && c.counts[0] * size_of(c.dtype) > kTreeBroadcastBytes ? "scatter" : "tree";
    case CollectiveKind::kReduce:
      return "tree";
    case CollectiveKind::kReduceScatter:
      return is_whole(c) ? "tree" : "direct";
    default:
      return "direct";
  }
}

// Whether the sums of a member's schedule are what the collective asks for.
bool will_do(const Collective& c, const Schedule& schedule) {
  return (may_be_fast(c) || schedule.order == Order::kCanonical) && (!is_whole(c) || combines_whole(schedule));
}

bool will_do(const Collective& c, const Shape& shape, ScheduleMaker make) {
  const int members = is_whole(c) ? shape.size : 1;  // the order is the same on all
  for (int member = 0; member < members; ++member) {
    if (!will_do(c, make(shape, member))) return false;
  }
  return true;
}

}  // namespace

AlgorithmWishes read_wishes(const std::string& text) {
  AlgorithmWishes wishes;
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) {
    const std::size_t equals = part.find('=');
    if (equals == std::string::npos) {
      throw std::invalid_argument(say("HORO_ALGORITHMS: \"", part, "\", expected collective=algorithm"));
    }
    const CollectiveKind kind = kind_named(part.substr(0, equals));
    const std::string name = part.substr(equals + 1);
    if (name.starts_with("@")) {
      const GivenSchedules& given = wishes.files[kind] = read_schedules(name.substr(1));
      if (given.shape.kind == kind) continue;
      throw std::invalid_argument(say("HORO_ALGORITHMS: ", name.substr(1), " has schedules for ",
                                      name_of(given.shape.kind), ", not for ", name_of(kind)));
    }
    if (find(kind, name) == nullptr) {
      throw std::invalid_argument(
          say("HORO_ALGORITHMS: ", name_of(kind), " has no algorithm \"", name, "\"; it has ", names_for(kind)));
    }
    wishes.names[kind] = name;
  }
  return wishes;
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

const NamedMaker& choose(const Collective& collective, const Shape& shape, const AlgorithmWishes& wishes) {
  const NamedMaker* chosen = find(collective.kind, by_rule(collective, shape));
  HORO_CHECK(chosen != nullptr);
  const auto wish = wishes.names.find(collective.kind);
  if (wish == wishes.names.end()) return *chosen;
  const NamedMaker* wished = find(collective.kind, wish->second);
  return will_do(collective, shape, wished->make) ? *wished : *chosen;
}

const std::vector<Schedule>* given_for(const Collective& collective, const Shape& shape,
                                       const AlgorithmWishes& wishes) {
  const auto found = wishes.files.find(collective.kind);
  if (found == wishes.files.end()) return nullptr;
  const GivenSchedules& given = found->second;
  if (given.shape.size != shape.size || given.shape.root != shape.root) return nullptr;
  const auto suits = [&](const Schedule& schedule) { return will_do(collective, schedule); };
  if (!std::all_of(given.schedules.begin(), given.schedules.end(), suits)) return nullptr;
  for (std::size_t i = 0; i < shape.contributors.size(); ++i) {
    if (shape.contributors[i] != static_cast<std::int64_t>(i)) return nullptr;
  }
  return &given.schedules;
}

}  // namespace horo
