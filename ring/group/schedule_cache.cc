#include "ring/group/schedule_cache.h"

#include "horo/base/log.h"
#include "horo/base/say.h"
#include "ring/reduce/custom_op.h"

namespace horo {
namespace {

// A full cache is cleared.
constexpr std::size_t kMostSchedules = 64;
constexpr std::size_t kMostChoices = 4096;

}  // namespace

// A new shape (another root, an absent member) gets a schedule of its own.
std::shared_ptr<const Schedule> ScheduleCache::schedule_for(const Collective& c) {
  const Shape shape = shape_of(c, size_, hosts_);
  if (const auto* given = given_schedules_for(c, shape, overrides_)) {
    return std::make_shared<const Schedule>((*given)[static_cast<std::size_t>(index_)]);
  }
  const NamedMaker& maker = maker_for(c, shape);
  const ScheduleKey key{shape.kind, maker.name, shape.root, shape.contributors};
  MutexLock lock(mutex_);
  if (const auto found = schedules_.find(key); found != schedules_.end()) return found->second;
  if (schedules_.size() >= kMostSchedules) schedules_.clear();
  const auto made = std::make_shared<const Schedule>(maker.make(shape, index_));
  schedules_.emplace(key, made);
  return made;
}

std::string_view ScheduleCache::name_for(const Collective& c) {
  const Shape shape = shape_of(c, size_, hosts_);
  if (const auto* given = given_schedules_for(c, shape, overrides_)) return given->front().name;
  return maker_for(c, shape).name;
}

// Prices each shape and size class once, because the result is always the same.
const NamedMaker& ScheduleCache::maker_for(const Collective& c, const Shape& shape) {
  if (overrides_.names.contains(c.kind)) return choose(c, shape, overrides_, prices_);
  const bool is_custom = c.op == ReduceOp::kCustom, is_whole = c.custom != nullptr && c.custom->whole;
  const ChoiceKey key{c.kind, c.order, is_custom, is_whole, c.dtype, priced_bytes(c, size_), shape.contributors};
  {
    MutexLock lock(mutex_);
    if (const auto found = choices_.find(key); found != choices_.end()) return *found->second;
  }
  const NamedMaker& chosen = choose(c, shape, overrides_, prices_);
  log_debug(say(name_of(c.kind), " of up to ", priced_bytes(c, size_), " bytes on ", size_, " ranks: ", chosen.name));
  MutexLock lock(mutex_);
  if (choices_.size() >= kMostChoices) choices_.clear();
  return *choices_.emplace(key, &chosen).first->second;
}

}  // namespace horo
