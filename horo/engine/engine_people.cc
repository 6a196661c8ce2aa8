// What the engine does for people, beside its work. A person asks rank 0 what the ranks wait for (`horo why`): without
// a question nothing is sent and nothing wakes. Between hosts: the ways of messages, by which waits are divided, and
// the steps of ranks of other hosts, which ride on their reports to rank 0.

#include "horo/engine/engine.h"
#include "horo/steps/step_wire.h"

namespace horo {
namespace {

constexpr int kMostInEachReport = 64;           // ranks of a world whose reports have each step
constexpr std::chrono::seconds kWaysPause{10};  // the smallest round trip of a connection seldom changes

}  // namespace

// The rank that is rank 0 may be another one in each epoch, and each epoch has a link of its own.
void Engine::watch_link() {
  const std::uint32_t epoch = epoch_->membership.epoch;
  if (watched_ == epoch) return;
  watched_ = epoch;
  ways_due_ = job_times_.is_on() ? TimePoint::min() : TimePoint::max();
  way_ = Duration::zero();
  if (epoch > 0) timeline_.begin_epoch(Clock::now(), epoch, rank(), epoch_->config.size);
  const Topology here = topology();
  tells_steps_ = steps_.is_on() && here.rank != here.local_rank;
  if (rank() != 0) return;
  questions_.open(config_);
  epoch_->links.control->watch(questions_.bell());
}

// Every rank looks at the connection that its messages take.
void Engine::look_at_ways(TimePoint now) {
  const Config& config = epoch_->config;
  ways_due_ = config.local_size == config.size ? TimePoint::max() : now + kWaysPause;
  if (ways_due_ == TimePoint::max()) return;
  const ControlLink& control = *epoch_->links.control;
  if (rank() != 0) {
    way_ = control.way_to(0);
    return;
  }
  for (int other = 1; other < config.size; ++other) epoch_->coordinator.set_way(other, control.way_to(other));
}

void Engine::take_question(TimePoint now) {
  if (now >= ways_due_) look_at_ways(now);
  if (rank() != 0) return;
  const std::optional<std::uint32_t> question = questions_.next();
  if (question) epoch_->coordinator.on(AskedWhy{*question, tensor_table_.in_flight().oldest}, now, actions_);
}

// In the next report. In a large world not each step: rank 0 has to read them all.
void Engine::tell_step(TimePoint now) {
  const std::uint64_t ended = steps_.ended();
  if (ended == told_step_ || now < tells_next_) return;
  told_step_ = ended;
  if (epoch_->config.size > kMostInEachReport) tells_next_ = now + std::chrono::seconds(1);
  const std::optional<StepRecord> step = steps_.last_step();
  if (step) epoch_->coordinator.on(OwnFigures{encode(*step), step->end}, now, actions_);
}

// The guard of this host shows them.
void Engine::perform(OtherFigures& figures, std::vector<Event>&) {
  const std::uint32_t id = epoch_->membership.members[static_cast<std::size_t>(figures.rank)];
  const RunTable* table = questions_.table();
  if (table == nullptr || id >= static_cast<std::uint32_t>(table->others())) return;
  StepBoard& board = others_.try_emplace(id, table->other_board(static_cast<int>(id))).first->second;
  board.write(figures.rank, epoch_->config.size, decode_step(figures.bytes, figures.at));
}

void Engine::perform(Explain& answer, std::vector<Event>&) {
  questions_.answer(static_cast<std::uint32_t>(answer.question), answer.report);
}

}  // namespace horo
