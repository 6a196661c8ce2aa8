// WorkTable: the works of a session, by the numbers that the C ABI returns for them.
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

// Any thread. A number is positive and never used twice: its lower bits are an index, its upper bits a generation.
class WorkTable {
 public:
  // Numbers reserved before a submit, which cannot be undone when no number is left. Unused ones are returned.
  class Seat {
   public:
    explicit Seat(WorkTable& table) : table_(table) { table_.take({&number_, 1}); }
    Seat(const Seat&) = delete;
    ~Seat() {
      if (number_ != 0) table_.give_back({&number_, 1});
    }
    std::int64_t give(std::shared_ptr<horo::Work> work) noexcept {
      table_.fill({&number_, 1}, {&work, 1});
      return std::exchange(number_, 0);
    }

   private:
    WorkTable& table_;
    std::int64_t number_ = 0;
  };

  // The same for many numbers under one lock.
  class Seats {
   public:
    Seats(WorkTable& table, std::size_t count) : table_(table), numbers_(count) { table_.take(numbers_); }
    Seats(const Seats&) = delete;
    ~Seats() { table_.give_back(numbers_); }
    // Assigns the reserved numbers to the works and writes them to `numbers`. There are as many works as reserved
    // numbers.
    void give(std::vector<std::shared_ptr<horo::Work>> works, std::int64_t* numbers) noexcept {
      table_.fill(numbers_, works);
      std::copy(numbers_.begin(), numbers_.end(), numbers);
      numbers_.clear();
    }

   private:
    WorkTable& table_;
    std::vector<std::int64_t> numbers_;
  };

  // Throws std::invalid_argument if the number is unknown.
  std::shared_ptr<horo::Work> find(std::int64_t number) {
    const std::lock_guard lock(mutex_);
    return at(number);
  }
  std::vector<std::shared_ptr<horo::Work>> find(std::span<const std::int64_t> numbers) {
    std::vector<std::shared_ptr<horo::Work>> works;
    works.reserve(numbers.size());
    const std::lock_guard lock(mutex_);
    for (const std::int64_t number : numbers) works.push_back(at(number));
    return works;
  }

  void erase(std::int64_t number) { erase({&number, 1}); }
  // Throws std::invalid_argument if one of them is unknown; the others are erased.
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

  // All of them or, if it throws, none.
  void take(std::span<std::int64_t> numbers) {
    const std::lock_guard lock(mutex_);
    while (free_.size() < numbers.size()) grow();
    for (std::int64_t& number : numbers) {
      const std::uint32_t at = free_.back();
      free_.pop_back();
      number = ++places_[at].turn << kPlaceBits | at;
    }
  }

  void fill(std::span<const std::int64_t> numbers, std::span<std::shared_ptr<horo::Work>> works) noexcept {
    const std::lock_guard lock(mutex_);
    for (std::size_t i = 0; i < numbers.size(); ++i) places_[at_of(numbers[i])].work = std::move(works[i]);
  }

  void give_back(std::span<const std::int64_t> numbers) noexcept {
    if (numbers.empty()) return;
    const std::lock_guard lock(mutex_);
    for (const std::int64_t number : numbers) {
      free_.push_back(static_cast<std::uint32_t>(at_of(number)));  // there is room: see grow()
    }
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

  // An unknown one, if any.
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

  const std::shared_ptr<horo::Work>& at(std::int64_t number) const {
    if (!holds(number)) refuse(number);
    return places_[at_of(number)].work;
  }

  [[noreturn]] static void refuse(std::int64_t number) {
    throw std::invalid_argument("there is no work " + std::to_string(number));
  }

  std::mutex mutex_;
  std::vector<Place> places_;
  std::vector<std::uint32_t> free_;  // a stack: the index freed last is used first
};

}  // namespace horo_c
