// ScheduleCache: the schedules of a group, chosen and made once for each shape of a collective.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "horo/base/mutex.h"
#include "ring/group/choose.h"

namespace horo {

// Any thread.
class ScheduleCache {
 public:
  // A group of `size` members of which this one is `index`; `hosts`: by member.
  ScheduleCache(int size, int index, std::vector<int> hosts, AlgorithmOverrides overrides, const Prices& prices)
      : size_(size), index_(index), hosts_(std::move(hosts)), overrides_(std::move(overrides)), prices_(prices) {}

  const AlgorithmOverrides& overrides() const { return overrides_; }

  // This member's schedule for a collective, and the name of its algorithm.
  std::shared_ptr<const Schedule> schedule_for(const Collective& collective);
  std::string_view name_for(const Collective& collective);

 private:
  using ChoiceKey = std::tuple<CollectiveKind, Order, bool, bool, DType, std::size_t, std::vector<std::int64_t>>;
  using ScheduleKey = std::tuple<CollectiveKind, std::string, int, std::vector<std::int64_t>>;

  const NamedMaker& maker_for(const Collective& c, const Shape& shape);

  const int size_, index_;
  const std::vector<int> hosts_;
  const AlgorithmOverrides overrides_;
  const Prices prices_;
  Mutex mutex_;
  std::map<ChoiceKey, const NamedMaker*> choices_ GUARDED_BY(mutex_);
  std::map<ScheduleKey, std::shared_ptr<const Schedule>> schedules_ GUARDED_BY(mutex_);
};

}  // namespace horo
