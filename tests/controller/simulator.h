// Simulation: N ranks over a virtual network in virtual time, from one seed. Messages of a link keep their order.
// Links, wake-ups of the engine, calls and collectives take random times.
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

// The calls of a rank's caller, in order.
struct SubmitCall {
  TensorSpec spec;
  bool absent = false;
  std::string set = "";  // the set of this name, instead of that of the spec
};
struct WaitCall {};  // for everything that it submitted
struct EndStepCall {
  std::uint32_t set = 0;
};
struct AddSetCall {
  std::vector<int> ranks;
  std::string name = "";  // not empty: the members alone make the call
};
struct RemoveSetCall {
  std::uint32_t set = 0;
  std::string name = "";  // the set that its members have added by this name
};
struct JoinCall {
  std::uint32_t set = 0;
};
struct LeaveCall {};  // leaves in good order
struct PauseCall {
  Duration time;
};
struct BeginRoundCall {
  RoundStream stream;
  RoundNumber round;
};
struct FailRoundCall {
  RoundStream stream;
  std::string reason;
};
using Call = std::variant<SubmitCall, WaitCall, EndStepCall, AddSetCall, RemoveSetCall, JoinCall, LeaveCall, PauseCall,
                          BeginRoundCall, FailRoundCall>;
using Program = std::vector<Call>;

struct SimulationConfig {
  CoordinatorConfig coordinator;  // its rank is not used
  std::uint64_t seed = 1;
  std::uint64_t undeclare_every = 0;  // see EngineModel
  bool keep_bytes = false;            // sent() has the bytes of messages
};

struct SentMessage {
  int step = 0;  // step of the sender, from 0
  int from = 0;
  Send send;
};

class Simulation {
 public:
  // One program for each rank.
  Simulation(const SimulationConfig& config, std::vector<Program> programs);

  // Runs until no event is left, or an hour of virtual time has passed.
  void run();

  // Empty if all ranks finished their programs; else the position of each of the others.
  std::string stuck() const;
  EngineModel& engine(int rank) { return ranks_[static_cast<std::size_t>(rank)].engine; }
  const std::vector<SentMessage>& sent() const { return sent_; }
  // The time from the first call to the last.
  Duration duration() const { return last_call_ - start_; }

 private:
  struct Rank {
    EngineModel engine;
    Program program;
    std::size_t next_call = 0;
    int step = 0;
    bool waiting = false;
    bool woken = false;
    bool left = false;
    TimePoint busy_until;         // of the lane
    std::vector<TimePoint> link;  // to each rank: arrival time of the last message
  };
  struct ScheduledEvent {
    TimePoint at;
    std::uint64_t serial = 0;
    std::function<void()> what;
    bool operator<(const ScheduledEvent& o) const { return at != o.at ? at > o.at : serial > o.serial; }
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
  std::priority_queue<ScheduledEvent> events_;
  std::vector<Rank> ranks_;
  std::vector<SentMessage> sent_;
};

// A gradient: stepwise, float32, averaged.
TensorSpec gradient(const std::string& name, std::vector<std::int64_t> shape = {256});

SimulationConfig world_of(int size, std::uint64_t seed = 1);

// A few ids only, fewer than most programs have tensors; the seed decides how many, and how often keys are undeclared.
void forget_often(SimulationConfig& config);

}  // namespace horo
