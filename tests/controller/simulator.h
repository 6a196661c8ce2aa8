// Simulation: N ranks over a virtual network in virtual time, from one seed. Messages of a link keep their order, all
// else takes a random time: links, the engine's wake-ups, the caller between two calls, collectives.
#pragma once

#include <cstdint>
#include <functional>
#include <queue>
#include <random>
#include <string>
#include <variant>
#include <vector>

#include "controller/coordinator.h"
#include "tests/controller/engine_model.h"

namespace horo {

// What a rank's caller does, one after the other.
struct SubmitCall {
  TensorSpec spec;
  bool absent = false;
};
struct WaitCall {};  // for all that it submitted
struct EndStepCall {
  std::uint32_t set = 0;
};
struct AddSetCall {
  std::vector<int> ranks;
};
struct RemoveSetCall {
  std::uint32_t set = 0;
};
struct JoinCall {
  std::uint32_t set = 0;
};
struct LeaveCall {};  // shuts down in good order
struct PauseCall {
  Duration time;
};
using Call = std::variant<SubmitCall, WaitCall, EndStepCall, AddSetCall, RemoveSetCall, JoinCall, LeaveCall, PauseCall>;
using Program = std::vector<Call>;

struct SimulationConfig {
  CoordinatorConfig coordinator;  // rank is not used
  std::uint64_t seed = 1;
  bool keep_bytes = false;  // of messages, in sent()
};

struct SentMessage {
  int step = 0;  // of the sender, from 0
  int from = 0;
  Send send;
};

class Simulation {
 public:
  // One program for each rank.
  Simulation(const SimulationConfig& config, std::vector<Program> programs);

  // Until nothing is left to happen, or an hour has gone by on the virtual clock.
  void run();

  // Empty if all ranks came to the end of their programs; else where each of the others stands.
  std::string stuck() const;
  EngineModel& hall(int rank) { return ranks_[static_cast<std::size_t>(rank)].hall; }
  const std::vector<SentMessage>& sent() const { return sent_; }
  // How long the callers took, from the first call to the last.
  Duration duration() const { return last_call_ - start_; }

 private:
  struct Rank {
    EngineModel hall;
    Program program;
    std::size_t next_call = 0;
    int step = 0;
    bool waiting = false;
    bool woken = false;
    bool left = false;
    TimePoint busy_until;         // the lane
    std::vector<TimePoint> link;  // to each rank: when its last message arrives
  };
  struct Happening {
    TimePoint at;
    std::uint64_t serial = 0;
    std::function<void()> what;
    bool operator<(const Happening& o) const { return at != o.at ? at > o.at : serial > o.serial; }
  };

  Rank& rank(int r) { return ranks_[static_cast<std::size_t>(r)]; }
  Duration up_to(Duration most);
  void later(TimePoint at, std::function<void()> what);
  void deliver(int from, int to, Event event);
  void wake(int r);
  void turn(int r);
  void advance(int r);
  bool call(int r);

  const SimulationConfig config_;
  std::mt19937_64 random_;
  TimePoint start_{};
  TimePoint now_{};
  TimePoint last_call_{};
  std::uint64_t serial_ = 0;
  std::priority_queue<Happening> happenings_;
  std::vector<Rank> ranks_;
  std::vector<SentMessage> sent_;
};

// A gradient: stepwise, float32, averaged.
TensorSpec gradient(const std::string& name, std::vector<std::int64_t> shape = {256});

SimulationConfig world_of(int size, std::uint64_t seed = 1);

}  // namespace horo
