#include "tests/controller/simulator.h"

#include <algorithm>
#include <utility>

namespace horo {

using namespace std::chrono_literals;

Simulation::Simulation(const SimulationConfig& config, std::vector<Program> programs)
    : config_(config), random_(config.seed) {
  start_ = now_ = last_call_ = TimePoint{} + 1h;
  for (std::size_t r = 0; r < programs.size(); ++r) {
    CoordinatorConfig own = config.coordinator;
    own.rank = static_cast<int>(r);
    own.size = static_cast<int>(programs.size());
    ranks_.push_back({EngineModel(own), std::move(programs[r]), 0, 0, false, false, false, now_,
                      std::vector<TimePoint>(programs.size(), now_)});
    ranks_.back().engine.undeclare_every(config.undeclare_every);
  }
}

Duration Simulation::up_to(Duration most) {
  return Duration(std::uniform_int_distribution<Duration::rep>(1, most.count())(random_));
}

void Simulation::later(TimePoint at, std::function<void()> what) {
  events_.push({at, ++serial_, std::move(what)});
}

void Simulation::run() {
  const TimePoint deadline = now_ + 1h;
  for (int r = 0; r < static_cast<int>(ranks_.size()); ++r) advance(r);
  while (!events_.empty() && events_.top().at < deadline) {
    const ScheduledEvent next = events_.top();
    events_.pop();
    now_ = next.at;
    next.what();
  }
}

void Simulation::deliver(int from, int to, Event event) {
  TimePoint& arrives = rank(from).link[static_cast<std::size_t>(to)];
  arrives = std::max(arrives, now_ + up_to(200us));
  later(arrives, [this, to, event = std::move(event)] {
    rank(to).engine.post(event);
    wake(to);
  });
}

void Simulation::wake(int r) {
  if (rank(r).woken || rank(r).left || !rank(r).engine.has_events()) return;
  rank(r).woken = true;
  later(now_ + up_to(30us), [this, r] { turn(r); });
}

void Simulation::turn(int r) {
  rank(r).woken = false;
  EngineModel::Turn turn = rank(r).engine.turn(now_);
  for (Send& send : turn.sends) {
    const int to = send.to;
    deliver(r, to, Received{r, send.bytes});
    if (!config_.keep_bytes) send.bytes.clear();
    sent_.push_back({rank(r).step, r, std::move(send)});
  }
  for (const TimePoint at : turn.timers) {
    later(at, [this, r] {
      rank(r).engine.post(TimerFired{});
      wake(r);
    });
  }
  for (std::size_t i = 0; i < turn.started; ++i) {
    rank(r).busy_until = std::max(rank(r).busy_until, now_) + up_to(50us);
    later(rank(r).busy_until, [this, r] {
      rank(r).engine.finish_one();
      wake(r);
      if (std::exchange(rank(r).waiting, false)) advance(r);
    });
  }
  wake(r);
}

// One call of the program; false if it must wait.
bool Simulation::call(int r) {
  Rank& self = rank(r);
  last_call_ = now_;
  const Call& call = self.program[self.next_call];
  if (const auto* submit = std::get_if<SubmitCall>(&call)) {
    TensorSpec spec = submit->spec;
    if (!submit->set.empty()) spec.set = self.engine.set_named(submit->set);
    if (self.engine.takes(spec)) self.engine.submit(spec, submit->absent);
  }
  if (const auto* end = std::get_if<EndStepCall>(&call)) {
    self.engine.step_end(end->set);
    self.step += end->set == 0 ? 1 : 0;
  }
  if (const auto* add = std::get_if<AddSetCall>(&call)) {
    add->name.empty() ? self.engine.add_set(add->ranks) : self.engine.add_set_by_members(add->ranks, add->name);
  }
  if (const auto* remove = std::get_if<RemoveSetCall>(&call)) {
    remove->name.empty() ? self.engine.remove_set(remove->set)
                         : self.engine.remove_set_by_members(self.engine.set_named(remove->name), remove->name);
  }
  if (const auto* join = std::get_if<JoinCall>(&call)) self.engine.join(join->set);
  if (const auto* begin = std::get_if<BeginRoundCall>(&call)) self.engine.begin_round(begin->stream, begin->round);
  if (const auto* failed = std::get_if<FailRoundCall>(&call)) self.engine.fail_round(failed->stream, failed->reason);
  if (std::holds_alternative<WaitCall>(call)) {
    self.engine.nudge();
    self.waiting = !self.engine.idle();
    self.waiting ? self.engine.begin_wait(now_) : self.engine.end_wait();
  }
  if (std::holds_alternative<LeaveCall>(call)) {
    self.left = true;
    for (int to = 0; to < static_cast<int>(ranks_.size()); ++to) {
      if (to != r) deliver(r, to, RankLeft{r});
    }
  }
  wake(r);
  return !self.waiting;
}

void Simulation::advance(int r) {
  Rank& self = rank(r);
  if (self.left || self.next_call >= self.program.size() || !call(r)) return;
  const auto* pause = std::get_if<PauseCall>(&self.program[self.next_call++]);
  later(now_ + (pause != nullptr ? pause->time : up_to(10us)), [this, r] { advance(r); });
}

std::string Simulation::stuck() const {
  std::string text;
  for (std::size_t r = 0; r < ranks_.size(); ++r) {
    const Rank& self = ranks_[r];
    if (self.left || self.next_call >= self.program.size()) continue;
    text += "rank " + std::to_string(r) + " at call " + std::to_string(self.next_call) + " of step " +
            std::to_string(self.step) + ", waiting for" + self.engine.in_flight() + "\n";
  }
  return text;
}

TensorSpec gradient(const std::string& name, std::vector<std::int64_t> shape) {
  TensorSpec spec;
  spec.name = name;
  spec.stepwise = true;
  spec.op = ReduceOp::kAverage;
  spec.shape = std::move(shape);
  return spec;
}

SimulationConfig world_of(int size, std::uint64_t seed) {
  SimulationConfig config;
  config.coordinator.size = size;
  config.coordinator.bucket_bytes = 16 << 10;
  config.seed = seed;
  return config;
}

void forget_often(SimulationConfig& config) {
  config.coordinator.kept_tensors = 1 + config.seed % 8;
  config.undeclare_every = config.seed / 8 % 4;
}

}  // namespace horo
