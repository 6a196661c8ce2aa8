// WorkTable: the works of a session by the numbers that callers have for them.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

#include "horo/horo.h"

namespace horo_c {

// Any thread. A number is above 0, and never used twice: the lower bits are a place, the upper ones how many had it.
class WorkTable {
 public:
  std::int64_t add(std::shared_ptr<horo::Work> work) {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) grow();
    const std::uint32_t at = free_.back();
    free_.pop_back();
    Place& place = places_[at];
    place.work = std::move(work);
    return ++place.turn << kPlaceBits | at;
  }

  // Throws std::invalid_argument where there is none.
  std::shared_ptr<horo::Work> find(std::int64_t number) {
    const std::lock_guard lock(mutex_);
    return places_[place_of(number)].work;
  }

  void erase(std::int64_t number) {
    std::shared_ptr<horo::Work> work;  // freed without the lock
    const std::lock_guard lock(mutex_);
    const std::uint32_t at = place_of(number);
    work.swap(places_[at].work);
    free_.push_back(at);  // there is room: see grow()
  }

 private:
  static constexpr int kPlaceBits = 24;
  static constexpr std::size_t kMostPlaces = std::size_t{1} << kPlaceBits;
  struct Place {
    std::shared_ptr<horo::Work> work;  // null: free
    std::int64_t turn = 0;
  };

  void grow() {
    const std::size_t count = places_.size();
    if (count == kMostPlaces) throw std::length_error("more than 2^24 works have not been released");
    const std::size_t more = count == 0 ? 64 : count;
    free_.reserve(count + more);
    places_.resize(count + more);
    for (std::size_t at = count + more; at > count; --at) free_.push_back(static_cast<std::uint32_t>(at - 1));
  }

  std::uint32_t place_of(std::int64_t number) const {
    const auto at = static_cast<std::uint64_t>(number) & (kMostPlaces - 1);
    if (at >= places_.size() || !places_[at].work || places_[at].turn != number >> kPlaceBits) {
      throw std::invalid_argument("there is no work " + std::to_string(number));
    }
    return static_cast<std::uint32_t>(at);
  }

  std::mutex mutex_;
  std::vector<Place> places_;
  std::vector<std::uint32_t> free_;  // what was freed last is used first
};

}  // namespace horo_c
