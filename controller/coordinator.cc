// A coordinator is a member, on every rank, and a leader, on rank 0 alone. On rank 0 they exchange messages without
// encoding.
#include "controller/coordinator.h"

#include <map>
#include <optional>
#include <utility>

#include "controller/held_messages.h"
#include "controller/leader.h"
#include "controller/member.h"
#include "horo/base/check.h"
#include "horo/base/error.h"

namespace horo {

class Coordinator::State {
 public:
  explicit State(const CoordinatorConfig& config) : State(config, Member(config)) {}
  State(const CoordinatorConfig& config, const State& before, const std::vector<int>& rank_of)
      : State(config, Member(config, before.member_, rank_of)) {}

  State(const CoordinatorConfig& config, const SetTable& sets) : State(config, Member(config, sets)) {}

  Member& member() { return member_; }
  const Member& member() const { return member_; }
  std::vector<ReadyTime> ready_times() const {
    const auto began = [this](std::uint32_t set) {
      const auto found = steps_.find(set);
      return found == steps_.end() ? TimePoint::min() : found->second.began;
    };
    return leader_ ? leader_->ready_times(began) : member_.ready_times(began);
  }

  void on(const Submitted& event, TimePoint now, Actions& actions) { member_.on(event, now, actions); }
  void on(const PlanComplete& event, TimePoint now, Actions& actions) { member_.on(event, now, actions); }
  void on(const PlanActive& event, TimePoint, Actions&) { member_.on(event); }
  void on(const Received& event, TimePoint now, Actions& actions);
  void on(const StepEnded& event, TimePoint now, Actions&) {
    Step& step = steps_[event.set];
    step.began = std::exchange(step.ended, event.at == TimePoint::min() ? now : event.at);
    if (leader_) {
      leader_->step_ended(event.set);
    } else {
      member_.on(event);
    }
  }
  void on(const RankLeft& event, TimePoint now, Actions& actions);
  void on(const TimerFired&, TimePoint now, Actions&) {
    armed_.reset();
    if (leader_) leader_->timer_fired(now);
  }
  void on(const Diagnosed& event, TimePoint, Actions&) { member_.on(event); }
  void on(const AskedWhy& event, TimePoint now, Actions&) {
    if (leader_) leader_->asked_why(event, now);
  }
  void on(const OwnFigures& event, TimePoint, Actions&) { member_.on(event); }
  void on(const Done& event, TimePoint, Actions&) { member_.on(event); }
  void on(const RoundBegun& event, TimePoint now, Actions&) { member_.on(event, now); }
  void on(const RoundFailed& event, TimePoint now, Actions&) { member_.on(event, now); }
  void flush(TimePoint now, Actions& actions);
  void set_way(int rank, Duration way) {
    if (leader_) leader_->set_way(rank, way);
  }

 private:
  State(const CoordinatorConfig& config, Member member)
      : config_(config), member_(std::move(member)), held_(config.size) {
    HORO_CHECK(config.rank >= 0 && config.rank < config.size);
    if (config.rank == 0) leader_.emplace(config, member_.sets());
  }

  // The last step of a set. Tensors that became ready at the time of the step end before it belong to it.
  struct Step {
    TimePoint began = TimePoint::min();
    TimePoint ended = TimePoint::min();
  };

  void take(const Received& event, TimePoint now, Actions& actions);
  void flush_leader(const std::vector<UpMessage>& own, TimePoint now, Actions& actions);

  const CoordinatorConfig config_;
  Member member_;
  std::optional<Leader> leader_;
  HeldMessages held_;               // of the leader's stream
  std::optional<TimePoint> armed_;  // the last SetTimer, if its time has not passed
  bool leader_left_ = false;
  std::map<std::uint32_t, Step> steps_;  // by set
};

void Coordinator::State::on(const Received& event, TimePoint now, Actions& actions) {
  try {
    take(event, now, actions);
  } catch (const ProtocolError& error) {
    throw ProtocolError("coordinator of rank " + std::to_string(config_.rank) + ", message from rank " +
                        std::to_string(event.from) + ": " + error.what());
  }
}

void Coordinator::State::take(const Received& event, TimePoint now, Actions& actions) {
  if (!leader_) {
    if (event.from != 0) throw ProtocolError("only rank 0 sends messages to other ranks");
    if (!leader_left_) member_.apply(decode_down(event.bytes, config_), actions);
    return;
  }
  if (event.from < 1 || event.from >= config_.size)
    throw ProtocolError("rank 0 receives messages of ranks 1 to " + std::to_string(config_.size - 1) + " alone");
  if (leader_->has_left(event.from)) return;  // its incomplete tensors have failed
  leader_->take(event.from, decode_up(event.bytes, config_), now);
}

void Coordinator::State::on(const RankLeft& event, TimePoint now, Actions& actions) {
  if (event.rank == config_.rank) return;
  if (leader_) {
    HORO_CHECK(event.rank > 0 && event.rank < config_.size);
    leader_->rank_left(event.rank, now);
    held_.drop(event.rank);
  } else if (event.rank == 0) {
    leader_left_ = true;
    member_.leader_left(actions);
  }
}

void Coordinator::State::flush(TimePoint now, Actions& actions) {
  std::vector<UpMessage> reports = member_.take_reports(now);
  if (leader_) return flush_leader(reports, now, actions);
  if (leader_left_) return;
  for (UpMessage& report : reports) {
    Send send{0, {}, report.has_names(), report.has_bits()};
    send.bytes = encode(std::move(report));
    actions.emplace_back(std::move(send));
  }
}

void Coordinator::State::flush_leader(const std::vector<UpMessage>& own, TimePoint now, Actions& actions) {
  for (const UpMessage& report : own) leader_->take(0, report, now);
  if (const std::optional<DownMessage> message = leader_->flush(now)) {
    const std::vector<std::byte> bytes = config_.size > 1 ? encode(*message) : std::vector<std::byte>();
    const bool has_names = message->has_names();
    const bool has_bits = message->has_bits();
    const RankSet concerned = concerned_by(*message, config_.size);
    for (int rank = 1; rank < config_.size; ++rank) {
      if (!leader_->has_left(rank)) held_.add({rank, bytes, has_names, has_bits}, concerned.contains(rank), actions);
    }
    member_.apply(*message, actions);
  }
  if (std::optional<Explain> answer = leader_->take_explanation(now)) actions.emplace_back(std::move(*answer));
  for (OtherFigures& figures : leader_->take_figures()) actions.emplace_back(std::move(figures));
  for (std::string& text : leader_->take_warnings()) actions.emplace_back(Warn{std::move(text)});
  const std::optional<TimePoint> due = leader_->due();
  if (!due || (armed_ && *armed_ <= *due)) return;
  armed_ = due;
  actions.emplace_back(SetTimer{*due});
}

Coordinator::Coordinator(const CoordinatorConfig& config) : state_(std::make_unique<State>(config)) {}
Coordinator::Coordinator(const CoordinatorConfig& config, const Coordinator& before, const std::vector<int>& rank_of)
    : state_(std::make_unique<State>(config, *before.state_, rank_of)) {}
Coordinator::Coordinator(const CoordinatorConfig& config, const SetTable& sets)
    : state_(std::make_unique<State>(config, sets)) {}
Coordinator::~Coordinator() = default;
Coordinator::Coordinator(Coordinator&&) noexcept = default;

void Coordinator::declare(Key key, const TensorSpec& spec) {
  state_->member().declare(key, spec);
}

void Coordinator::undeclare(Key key) {
  state_->member().undeclare(key);
}

void Coordinator::on(const Event& event, TimePoint now, Actions& actions) {
  std::visit([&](const auto& one) { state_->on(one, now, actions); }, event);
}

void Coordinator::flush(TimePoint now, Actions& actions) {
  state_->flush(now, actions);
}

void Coordinator::set_way(int rank, Duration way) {
  state_->set_way(rank, way);
}

std::map<std::uint32_t, std::vector<int>> Coordinator::sets() const {
  std::map<std::uint32_t, std::vector<int>> sets;
  for (const auto& [number, set] : std::as_const(*state_).member().sets().all()) sets.emplace(number, set.ranks);
  return sets;
}

StreamEffects Coordinator::effects() const {
  return std::as_const(*state_).member().effects();
}

void Coordinator::catch_up(const std::map<std::uint64_t, std::vector<std::byte>>& effects, Actions& actions) {
  for (const auto& [number, bytes] : effects) state_->member().catch_up(number, bytes, actions);
}

std::vector<ReadyTime> Coordinator::ready_times() const {
  return state_->ready_times();
}

}  // namespace horo
