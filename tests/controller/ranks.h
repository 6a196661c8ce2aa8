// Ranks: a few engine models whose messages arrive without delay. The test sets the time.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <utility>
#include <vector>

#include "tests/controller/engine_model.h"
#include "tests/controller/simulator.h"

namespace horo {

// The matchers of the tests that use Ranks.
using namespace std::chrono_literals;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::Pair;
using testing::StartsWith;

class Ranks {
 public:
  explicit Ranks(int size, CoordinatorConfig config = {}) {
    for (config.size = size, config.rank = 0; config.rank < size; ++config.rank) engines_.emplace_back(config);
    running_.resize(engines_.size());
  }
  EngineModel& operator[](int rank) { return engines_[static_cast<std::size_t>(rank)]; }
  int size() const { return static_cast<int>(engines_.size()); }
  TimePoint now = TimePoint{} + std::chrono::hours(1);
  std::vector<Send> sent;
  bool lanes_stand = false;

  // Runs all turns and delivers all messages until there are none. Collectives finish at once, unless lanes_stand.
  void settle() {
    for (bool quiet = false; !std::exchange(quiet, true);) {
      for (int rank = 0; rank < size(); ++rank) {
        if (!(*this)[rank].has_events()) continue;
        quiet = false;
        deliver(rank, turn(rank));
      }
    }
  }
  std::vector<Send> turn(int rank) {
    EngineModel::Turn turn = (*this)[rank].turn(now);
    std::size_t& running = running_[static_cast<std::size_t>(rank)];
    running += turn.started;
    if (!lanes_stand) finish(rank, running);
    for (const TimePoint at : turn.timers) timer = at;
    sent.insert(sent.end(), turn.sends.begin(), turn.sends.end());
    return turn.sends;
  }
  // With lanes_stand, collectives finish here, the oldest first.
  void finish(int rank, std::size_t collectives = 1) {
    running_[static_cast<std::size_t>(rank)] -= collectives;
    for (std::size_t i = 0; i < collectives; ++i) (*this)[rank].finish_one();
  }
  // Finishes this number of collectives on each of these ranks.
  void finish_on(const std::vector<int>& some, std::size_t collectives = 1) {
    for (const int rank : some) finish(rank, collectives);
    settle();
  }
  void deliver(int from, const std::vector<Send>& sends) {
    for (const Send& send : sends) (*this)[send.to].post(Received{from, send.bytes});
  }
  // Advances the time to `end`, and fires rank 0's timers on the way.
  void fire_timers_until(TimePoint end) {
    while (timer <= end) {
      now = std::exchange(timer, TimePoint::max());
      (*this)[0].post(TimerFired{});
      settle();
    }
    now = end;
  }
  // Every rank submits all of these tensors.
  void submit(const std::vector<TensorSpec>& specs) {
    for (EngineModel& engine : engines_) {
      for (const TensorSpec& spec : specs) engine.submit(spec);
    }
    settle();
  }
  // These ranks submit all of these tensors.
  void submit_on(const std::vector<int>& some, const std::vector<TensorSpec>& specs) {
    for (const int rank : some) {
      for (const TensorSpec& spec : specs) (*this)[rank].submit(spec);
    }
    settle();
  }
  void step_on(const std::vector<int>& some, const std::vector<TensorSpec>& specs) {
    submit_on(some, specs);
    for (const int rank : some) (*this)[rank].step_end(specs.front().set);
    settle();
  }
  void add_set(const std::vector<int>& members, const std::string& name = "") {
    for (EngineModel& engine : engines_) engine.add_set(members, name);
    settle();
  }
  void remove_set(std::uint32_t set) {
    for (EngineModel& engine : engines_) engine.remove_set(set);
    settle();
  }
  void step(const std::vector<TensorSpec>& specs) {
    submit(specs);
    for (EngineModel& engine : engines_) engine.step_end();
    settle();
  }

  TimePoint timer = TimePoint::max();  // when rank 0's timer is due

 private:
  std::vector<EngineModel> engines_;
  std::vector<std::size_t> running_;  // by rank
};

inline TensorSpec in_set(std::uint32_t set, const std::string& name, std::vector<std::int64_t> shape = {256}) {
  TensorSpec spec = gradient(name, std::move(shape));
  spec.set = set;
  return spec;
}

// from, to: ranks in the set.
inline TensorSpec message(std::uint32_t set, const std::string& name, int from, int to) {
  TensorSpec spec = in_set(set, name);
  spec.kind = CollectiveKind::kSendRecv;
  spec.op = ReduceOp::kSum;
  spec.stepwise = false;
  spec.root = from;
  spec.peer = to;
  return spec;
}

// Runs steps of these tensors until they are in known plans.
inline void learn_plans(Ranks& ranks, const std::vector<TensorSpec>& specs) {
  for (int step = 0; step < 3; ++step) ranks.step(specs);
}

}  // namespace horo
