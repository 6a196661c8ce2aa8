// The fake of NCCL: the orders in which the devices of this process have collectives of several communicators.
//
// A device runs one collective after the other, each with all its members. So the order of all devices together has to
// be one without cycles: where one device has a collective of A before one of B, and another one has them the other way
// round, neither ends. NCCL leaves this to its caller.
#pragma once

#include <cstdio>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace fake_nccl {
namespace {

// A collective: the name of its communicator, which is the same on all members, and its number there.
using Operation = std::pair<std::string, int>;

class Orders {
 public:
  // The collective is the next one of this device.
  void begin(int device, const Operation& operation) {
    const std::lock_guard lock(mutex_);
    operations_[operation];
    const auto last = last_.find(device);
    if (last != last_.end() && operations_.contains(last->second) && last->second != operation) {
      if (is_before(operation, last->second)) report(device, last->second, operation);
      operations_[last->second].next.insert(operation);
    }
    last_[device] = operation;
  }

  // It has ended on one of so many members. A collective that has ended on all has none before it that has not.
  void end(const Operation& operation, int members) {
    const std::lock_guard lock(mutex_);
    const auto found = operations_.find(operation);
    if (found != operations_.end() && ++found->second.ended == members) operations_.erase(found);
  }

  // The communicator has ended on a member of this process, and so on all.
  void forget(const std::string& name) {
    const std::lock_guard lock(mutex_);
    std::erase_if(operations_, [&](const auto& one) { return one.first.first == name; });
  }

  int cycles() {
    const std::lock_guard lock(mutex_);
    return cycles_;
  }

 private:
  struct Place {
    std::set<Operation> next = {};
    int ended = 0;
  };

  bool is_before(const Operation& first, const Operation& second) const {
    std::set<Operation> seen{first};
    std::vector<Operation> open{first};
    while (!open.empty()) {
      const auto found = operations_.find(open.back());
      open.pop_back();
      if (found == operations_.end()) continue;
      if (found->second.next.contains(second)) return true;
      for (const Operation& next : found->second.next) {
        if (seen.insert(next).second) open.push_back(next);
      }
    }
    return false;
  }

  void report(int device, const Operation& first, const Operation& second) {
    ++cycles_;
    std::fprintf(
        stderr,
        "fake NCCL: a cycle of orders: device %d has collective %d of %s before collective %d of %s, and other "
        "devices have them the other way round\n",
        device, first.second, first.first.c_str(), second.second, second.first.c_str());
  }

  std::mutex mutex_;
  std::map<Operation, Place> operations_;
  std::map<int, Operation> last_;  // by device
  int cycles_ = 0;
};

}  // namespace
}  // namespace fake_nccl
