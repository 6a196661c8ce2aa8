// WorkTable: the works of a session by the numbers that callers have for them.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "horo/horo.h"

namespace horo_c {

// Any thread. A number is above 0, and never used twice: the lower bits are a place, the upper ones how many had it.
class WorkTable {
 public:
  // A number in reserve: what was submitted cannot be taken back for want of one. It goes back unless it is used.
  class Seat {
   public:
    explicit Seat(WorkTable& table) : table_(table), number_(table.take()) {}
    Seat(Seat&& other) noexcept : table_(other.table_), number_(std::exchange(other.number_, 0)) {}
    Seat(const Seat&) = delete;
    ~Seat() {
      if (number_ != 0) table_.give_back(number_);
    }
    std::int64_t give(std::shared_ptr<horo::Work> work) noexcept {
      table_.fill(number_, std::move(work));
      return std::exchange(number_, 0);
    }

   private:
    WorkTable& table_;
    std::int64_t number_;
  };

  // Throws std::invalid_argument where there is none.
  std::shared_ptr<horo::Work> find(std::int64_t number) {
    const std::lock_guard lock(mutex_);
    if (!holds(number)) refuse(number);
    return places_[at_of(number)].work;
  }

  void erase(std::int64_t number) { erase({&number, 1}); }
  // Throws std::invalid_argument where there is none of one of them; the others are erased all the same.
  void erase(std::span<const std::int64_t> numbers) {
    std::optional<std::int64_t> unknown;
    while (!numbers.empty()) {
      const auto batch = numbers.first(std::min(numbers.size(), kBatch));
      numbers = numbers.subspan(batch.size());
      if (const auto found = erase_batch(batch)) unknown = found;
    }
    if (unknown) refuse(*unknown);
  }

 private:
  static constexpr int kPlaceBits = 24;
  static constexpr std::size_t kMostPlaces = std::size_t{1} << kPlaceBits;
  static constexpr std::size_t kBatch = 64;
  struct Place {
    std::shared_ptr<horo::Work> work;  // null: free
    std::int64_t turn = 0;
  };

  std::int64_t take() {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) grow();
    const std::uint32_t at = free_.back();
    free_.pop_back();
    return ++places_[at].turn << kPlaceBits | at;
  }

  void fill(std::int64_t number, std::shared_ptr<horo::Work> work) noexcept {
    const std::lock_guard lock(mutex_);
    places_[at_of(number)].work = std::move(work);
  }

  void give_back(std::int64_t number) noexcept {
    const std::lock_guard lock(mutex_);
    free_.push_back(static_cast<std::uint32_t>(at_of(number)));  // there is room: see grow()
  }

  void grow() {
    const std::size_t count = places_.size();
    if (count == kMostPlaces) throw std::length_error("more than 2^24 works have not been released");
    const std::size_t more = count == 0 ? 64 : count;
    free_.reserve(count + more);
    places_.resize(count + more);
    for (std::size_t at = count + more; at > count; --at) free_.push_back(static_cast<std::uint32_t>(at - 1));
  }

  static std::size_t at_of(std::int64_t number) { return static_cast<std::uint64_t>(number) & (kMostPlaces - 1); }

  // One that is unknown, if any is.
  std::optional<std::int64_t> erase_batch(std::span<const std::int64_t> numbers) noexcept {
    std::array<std::shared_ptr<horo::Work>, kBatch> works;  // freed without the lock
    std::optional<std::int64_t> unknown;
    const std::lock_guard lock(mutex_);
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      if (holds(numbers[i])) {
        const std::size_t at = at_of(numbers[i]);
        works[i].swap(places_[at].work);
        free_.push_back(static_cast<std::uint32_t>(at));  // there is room: see grow()
      } else {
        unknown = numbers[i];
      }
    }
    return unknown;
  }

  bool holds(std::int64_t number) const {
    const std::size_t at = at_of(number);
    return at < places_.size() && places_[at].work && places_[at].turn == number >> kPlaceBits;
  }

  [[noreturn]] static void refuse(std::int64_t number) {
    throw std::invalid_argument("there is no work " + std::to_string(number));
  }

  std::mutex mutex_;
  std::vector<Place> places_;
  std::vector<std::uint32_t> free_;  // what was freed last is used first
};

}  // namespace horo_c
