// When a rank is lost, this rank freezes: it stops its lanes and tells the guard what is complete. The guard's view
// names the members of the next epoch. This rank then delivers what is committed, connects to the other members, and
// reports again what is in flight.
#include "horo/engine/elastic_epochs.h"

#include <algorithm>
#include <utility>

#include "elastic/commit.h"
#include "horo/base/fail_point.h"
#include "horo/base/log.h"
#include "horo/base/say.h"
#include "horo/engine/engine.h"
#include "horo/engine/views.h"
#include "ring/shm/arena.h"

namespace horo {
namespace {

// A rank that has left may have delivered a collective that this rank is about to deliver; no new epoch is needed then.
constexpr std::chrono::milliseconds kLeftPatience{100};
constexpr std::chrono::seconds kWaitForView{1};

}  // namespace

ElasticEpochs::ElasticEpochs(Engine& engine)
    : engine_(engine), door_(engine.config_), guard_(engine.config_.guard_fd, [this] { on_guard_message(); }) {}

// Without memory for the text the end of the process tells the guard.
void ElasticEpochs::fail(const std::string& why) noexcept {
  try {
    guard_.send(Leave{true, why});
  } catch (const std::bad_alloc&) {
  }
}

void ElasticEpochs::begin_epoch() {
  is_settled_ = false;
  left_since_.reset();
  left_rank_ = -1;
  door_.begin_epoch();
}

FailurePtr ElasticEpochs::loss(const std::string& text) const {
  return peer_lost(lost_rank_, text + ". " + lost_reason_);
}

// A member that misses another one before the first epoch begins asks for a view, as it does later.
void ElasticEpochs::join(const FirstLinks& first, const std::string& terms) {
  std::optional<View> view;
  if (engine_.config_.joins) {
    guard_.send(Ready{terms, door_.renew()});
    fail_point("join.ready");
    view = next_view();
    fail_point("join.view");
  }
  while (true) {
    const std::uint32_t epoch = view ? view->epoch : 0;
    try {
      enter_first(view, first);
      return guard_.send(Installed{epoch});
    } catch (const PeerLost& lost) {
      const std::vector<MemberId> members = view ? view->members : first_membership(engine_.config_).members;
      Frozen frozen{epoch, {}, member_at(members, lost.origin()), lost.what()};
      frozen.card = door_.renew();
      guard_.send(frozen);
    }
    view = next_view();
  }
}

void ElasticEpochs::enter_first(const std::optional<View>& view, const FirstLinks& first) {
  const std::uint32_t epoch = view ? view->epoch : 0;
  const bool joins = engine_.config_.joins;
  const IsCancelled is_cancelled = [this, epoch] { return guard_.has_ended(epoch); };
  const auto id = static_cast<MemberId>(engine_.config_.rank);
  const Membership membership = view ? membership_in(*view, id) : first_membership(engine_.config_);
  const Config config = view ? config_in(membership, *view, engine_.config_) : engine_.config_;
  if (view && !view->sets.empty()) joined_ = decode_join_state(view->sets);
  Links links = view ? door_.connect(*view, config, is_cancelled, nullptr) : first(is_cancelled);
  engine_.epoch_ = engine_.own(joins ? std::make_unique<EpochState>(membership, config, std::move(links), joined_)
                                     : std::make_unique<EpochState>(membership, config, std::move(links)));
  fail_point("start.connected");
  engine_.begin_lanes(epoch);
  engine_.publish(agree(engine_.epoch_));
  engine_.wake();  // for messages of the guard that came before, and for the first report
  fail_point("start.agreed");
  if (!view) return;
  RankChange change{epoch, engine_.rank(), membership.size(), {}, view->reason};
  if (joins) return engine_.tensor_table_.join(change, joined_, membership.members);
  change.rank_of = first_membership(engine_.config_).ranks_in(membership);
  engine_.tensor_table_.begin_epoch(change);
  engine_.tensor_table_.see(epoch);
}

// The guard may end an epoch while its members still agree on their settings.
void ElasticEpochs::on_guard_message() {
  std::shared_ptr<EpochState> installing;
  {
    const MutexLock lock(mutex_);
    installing = installing_;
  }
  if (installing && guard_.has_ended(installing->membership.epoch)) {
    installing->links.transport->abort(-1, "the epoch has ended before all its ranks had agreed");
  }
  engine_.wake_epoch();
  wake();
}

Topology ElasticEpochs::agree(const std::shared_ptr<EpochState>& next) {
  const auto set_installing = [this](std::shared_ptr<EpochState> epoch) {
    const MutexLock lock(mutex_);
    installing_ = std::move(epoch);
  };
  set_installing(next);
  if (guard_.has_ended(next->membership.epoch)) next->links.transport->abort(-1, "the epoch has ended already");
  try {
    const Topology topology = engine_.open_lanes(*next);
    set_installing(nullptr);
    return topology;
  } catch (...) {
    set_installing(nullptr);
    throw;
  }
}

View ElasticEpochs::next_view() {
  while (!guard_.is_closed()) {
    guard_.wait(Clock::now() + kWaitForView);
    while (const std::optional<GuardMessage> message = guard_.take()) {
      if (const auto* view = std::get_if<View>(&*message)) return *view;
      if (const auto* evicted = std::get_if<Evicted>(&*message)) throw PeerLost(engine_.config_.rank, evicted->reason);
      if (std::holds_alternative<Ask>(*message)) report(0);
    }
  }
  throw PeerLost(engine_.config_.rank, "the guard of the elastic job has ended");
}

// One by one: while a view is installed, the queue shows whether its epoch has ended.
void ElasticEpochs::take_messages() {
  while (const std::optional<GuardMessage> message = guard_.take()) {
    if (!engine_.ended_) std::visit([this](const auto& one) { take(one); }, *message);
  }
}

std::optional<TimePoint> ElasticEpochs::notice() {
  const auto until = guard_.notice();
  if (until) knows_notice_ = true;
  return until;
}

void ElasticEpochs::take(const Freeze& freeze) {
  if (frozen_ || freeze.epoch != engine_.epoch_->membership.epoch) return;
  const auto& members = engine_.epoch_->membership.members;
  const auto lost = freeze.lost ? std::find(members.begin(), members.end(), *freeze.lost) : members.end();
  this->freeze(lost == members.end() ? -1 : static_cast<int>(lost - members.begin()), freeze.reason, false);
}

void ElasticEpochs::take(const Parked& parked) {
  log_warning(
      say("rank ", engine_.rank(), " is parked: ", parked.members, " of at least ", parked.needed, " ranks are left"));
}

// Of the present epoch, or of one that ends.
void ElasticEpochs::take(const Missed& missed) {
  std::vector<int> ranks;
  const auto& members = engine_.epoch_->membership.members;
  for (const MemberId id : missed.members) {
    const auto found = std::find(members.begin(), members.end(), id);
    if (found != members.end()) ranks.push_back(static_cast<int>(found - members.begin()));
  }
  engine_.epoch_->detector.missed(ranks);
}

void ElasticEpochs::take(const Evicted& evicted) {
  if (!frozen_) engine_.abort_epoch(engine_.rank(), evicted.reason);
  engine_.tensor_table_.close(engine_.failure_of(engine_.rank(), evicted.reason));
  end();
}

void ElasticEpochs::take(const Ask&) {
  report(engine_.epoch_->membership.epoch);
}

// A person has asked. That there is no memory for the answer must not end the epoch.
void ElasticEpochs::report(std::uint32_t epoch) noexcept {
  try {
    TensorTable::InFlight in_flight = engine_.tensor_table_.in_flight();
    const Counters& counters = engine_.counters_;
    guard_.send(Report{epoch, counters.committed_rounds(), counters.committed_collectives(), in_flight.tensors,
                       std::move(in_flight.oldest)});
  } catch (const std::bad_alloc&) {
    log_warning("no memory to tell the guard the state of this rank");
  }
}

// A view comes when this rank is frozen: the guard has waited for it.
void ElasticEpochs::take(const View& view) {
  if (!frozen_)
    return log_error(say("rank ", engine_.rank(), " got the view of epoch ", view.epoch, " while it is not frozen"));
  install(view);
}

// Its scripts may go on with what is delivered now, while this rank stays frozen.
void ElasticEpochs::take(const Settle& message) {
  if (frozen_) settle(message.progress, message.effects);
}

void ElasticEpochs::check_left(TimePoint now) {
  if (engine_.ended_ || frozen_ || left_rank_ < 0 || !engine_.tensor_table_.has_in_flight()) {
    left_since_.reset();
    return;
  }
  if (!left_since_) left_since_ = now;
  const TimePoint next = engine_.detector_deadline_.value_or(TimePoint::max());
  engine_.detector_deadline_ = std::min(next, *left_since_ + kLeftPatience);
  if (now - *left_since_ >= kLeftPatience) freeze(left_rank_, say("rank ", left_rank_, " has left the job"), true);
}

void ElasticEpochs::freeze(int origin, const std::string& why, bool is_own) noexcept {
  fail_point("engine.freeze");
  bool is_whole = true;
  try {
    engine_.perform_pending();
  } catch (...) {
    is_whole = false;
  }
  engine_.rebuild_.reset();  // released too late: the request is in flight, and runs again
  wait_frozen();
  engine_.abort_epoch(origin, why);
  engine_.epoch_->lanes->join();
  try {
    if (!is_whole) throw std::bad_alloc();
    const auto lost = is_own ? member_at(engine_.epoch_->membership.members, origin) : std::nullopt;
    report_frozen(engine_.epoch_->membership.epoch, why, lost);
    log_info(say("rank ", engine_.rank(), " is frozen in epoch ", engine_.epoch_->membership.epoch, ": ", why));
  } catch (...) {
    const FailurePtr failure = failure_in_freeze();
    fail(failure->text);
    engine_.tensor_table_.close(failure);
    end();
  }
}

void ElasticEpochs::wait_frozen() {
  frozen_ = true;
  is_settled_ = false;
  engine_.set_between_epochs(true);
  engine_.stop_timers();
}

// A rank that is lost meanwhile does not let the others come to the border, so the guard asks them to freeze.
void ElasticEpochs::stop_at_border() {
  fail_point("border.released");
  const Item request = *std::exchange(engine_.rebuild_, std::nullopt);
  EpochState& epoch = *engine_.epoch_;
  bool has_ended = false;
  const bool is_drained = epoch.lanes->drain([&] {
    engine_.look_for_pause(Clock::now());
    if (has_ended || !(guard_.has_ended(epoch.membership.epoch) || guard_.misses_one() || engine_.is_leaving())) return;
    has_ended = true;
    engine_.abort_epoch(-1, "a rank was lost before the border");
  });
  if (!is_drained) return;  // Engine::check_lanes() has the failure, or the guard's message is here
  fail_point("border.drained");
  engine_.finish_devices();
  engine_.leave_epoch();
  fail_point("border.left");
  wait_frozen();
  epoch.lanes->stop();
  epoch.lanes->join();
  border_ = request;
  is_border_done_ = false;
  report_frozen(epoch.membership.epoch, "ranks join", std::nullopt);
}

// Called in a catch block.
FailurePtr ElasticEpochs::failure_in_freeze() const noexcept {
  try {
    return peer_lost(engine_.rank(), engine_.with_rank(current_failure()->text));
  } catch (const std::bad_alloc&) {
    return engine_.no_memory_;
  }
}

// After close(): this rank takes part no more.
void ElasticEpochs::end() noexcept {
  frozen_ = false;
  door_.close();
  engine_.end_works();
}

void ElasticEpochs::report_frozen(std::uint32_t epoch, const std::string& why, std::optional<MemberId> lost) {
  Frozen frozen{epoch, {}, lost, why};
  if (!is_settled_) {
    frozen.progress = engine_.epoch_->lanes->progress();
    StreamEffects effects = engine_.epoch_->coordinator.effects();
    frozen.applied = effects.applied;
    frozen.forgotten = effects.forgotten;
    frozen.effects = std::move(effects.effects);
    if (border_) {
      const auto& members = engine_.epoch_->membership.members;
      frozen.sets = encode(engine_.tensor_table_.for_joiners(members, border_->submission.key));
      frozen.at_border = frozen.sets.size() <= kMaxSetState;  // sets that another thread has added since grow()
      if (!frozen.at_border) frozen.sets.clear();
    }
  }
  frozen.card = door_.renew();
  fail_point("engine.stopped");
  guard_.send(frozen);
  fail_point("engine.frozen");
}

void ElasticEpochs::wait_for_view() {
  guard_.wait(Clock::now() + kWaitForView);
  take_messages();
  engine_.check_abort();
  engine_.publish_ready_times();
}

// What counts as done on the members that go on is delivered on all of them, and what the stream has changed on one of
// them changes on all of them.
void ElasticEpochs::settle(const ProgressOf& progress, const Effects& missed) {
  if (std::exchange(is_settled_, true)) return;
  Actions effects;
  std::vector<Event> none;
  engine_.epoch_->coordinator.catch_up(missed, effects);
  engine_.perform(std::move(effects), none);
  const auto& members = engine_.epoch_->membership.members;
  engine_.epoch_->lanes->settle([&](std::uint32_t lane, const Commit& commit, const std::vector<int>& ranks) {
    std::vector<MemberId> participants;
    for (const int rank : ranks) participants.push_back(members[static_cast<std::size_t>(rank)]);
    return is_committed(progress, lane, commit.number, participants);
  });
}

// The request for the growth is done if all members have left the epoch there. Else it is in flight on all of them, and
// runs again.
void ElasticEpochs::install(const View& view) {
  fail_point("engine.view");
  settle(view.progress, view.effects);
  if (view.at_border) is_border_done_ = true;
  if (!is_border_done_) border_.reset();
  fail_point("engine.settled");
  try {
    const std::shared_ptr<EpochState> next = connect(view);
    fail_point("engine.connected");
    const Topology topology = agree(next);
    fail_point("engine.agreed");
    RankChange change{view.epoch, next->config.rank, next->config.size, {}, view.reason};
    change.rank_of = engine_.epoch_->membership.ranks_in(next->membership);
    const auto stay = std::ranges::count_if(change.rank_of, [](int rank) { return rank >= 0; });
    change.has_joined = stay < change.size;
    next->take_memory(*engine_.epoch_);
    engine_.enter_epoch(next);
    lost_rank_ = first_lost(change.rank_of);
    if (std::exchange(has_nccl_error_, false) && lost_rank_ < 0) engine_.counters_.add_nccl_error();
    lost_reason_ = view.reason;
    const std::shared_ptr<Work> border = border_ ? border_->work : nullptr;
    border_.reset();
    Outcome outcome;  // all that may throw precedes the end of works
    outcome.counts = {view.epoch};
    const FailurePtr failure = engine_.failure_of(lost_rank_, view.reason);
    const std::vector<Item> over = engine_.tensor_table_.begin_epoch(change, border.get());
    try {
      engine_.publish(topology);  // after the tensor table knows the epoch
    } catch (...) {
      for (const Item& item : over) item.work->fail(failure);
      throw;
    }
    for (const Item& item : over) {
      if (item.work != border) item.work->fail(failure);
    }
    if (border) border->finish(std::move(outcome));
    frozen_ = false;
    engine_.set_between_epochs(false);
    guard_.send(Installed{view.epoch});
    fail_point("engine.installed");
    log_info(say("rank ", engine_.rank(), " of ", next->config.size, " goes on in epoch ", view.epoch));
    engine_.wake();  // for the first report
  } catch (const PeerLost& lost) {
    report_frozen(view.epoch, lost.what(), member_at(view.members, lost.origin()));
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& error) {  // what a rank that joins brings along does not end the others
    if (view.joined.empty()) throw;
    report_frozen(view.epoch, error.what(), view.joined.front());
  }
}

std::shared_ptr<EpochState> ElasticEpochs::connect(const View& view) {
  const auto& before = engine_.epoch_->membership;
  const Membership membership = membership_in(view, before.members[static_cast<std::size_t>(before.rank)]);
  const Config config = config_in(membership, view, engine_.config_);
  const auto is_cancelled = [this, &view] { return guard_.has_ended(view.epoch) || engine_.is_leaving(); };
  Links links = door_.connect(view, config, is_cancelled, engine_.epoch_.get());
  return engine_.own(std::make_unique<EpochState>(membership, config, std::move(links), *engine_.epoch_));
}

}  // namespace horo
