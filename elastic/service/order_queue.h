// OrderQueue: the orders that a host has not taken, with what they take on the wire.
#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <utility>

#include "elastic/host_messages.h"

namespace horo {

// The size of the last message is kept, since many hosts get it.
class OrderSizes {
 public:
  std::size_t of(const HostOrder& order);

 private:
  std::weak_ptr<const GuardMessage> last_;
  std::size_t last_bytes_ = 0;
};

class OrderQueue {
 public:
  bool empty() const { return orders_.empty(); }
  std::size_t size() const { return orders_.size(); }
  std::size_t bytes() const { return bytes_; }
  void push(HostOrder order, std::size_t bytes) {
    bytes_ += bytes;
    orders_.emplace_back(std::move(order), bytes);
  }
  HostOrder pop() {
    bytes_ -= orders_.front().second;
    HostOrder first = std::move(orders_.front().first);
    orders_.pop_front();
    return first;
  }
  // The last order; null: there is none.
  HostOrder* last() { return orders_.empty() ? nullptr : &orders_.back().first; }
  void clear() {
    orders_.clear();
    bytes_ = 0;
  }

 private:
  std::deque<std::pair<HostOrder, std::size_t>> orders_;
  std::size_t bytes_ = 0;
};

}  // namespace horo
