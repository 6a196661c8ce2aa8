// The engine in an elastic job. When a rank is lost, this rank freezes: it stops its lanes and tells the guard what is
// complete. The guard's view names the members of the next epoch. This rank then delivers what is committed, connects
// to the other members, and reports again what is in flight. docs/protocol.md has the protocol.

#include <algorithm>
#include <utility>

#include "elastic/commit.h"
#include "horo/base/fail_point.h"
#include "horo/base/log.h"
#include "horo/base/say.h"
#include "horo/engine/engine.h"
#include "ring/shm/arena.h"

namespace horo {
namespace {

// A rank that has left may have delivered a collective that this rank is about to deliver; no new epoch is needed then.
constexpr std::chrono::milliseconds kLeftPatience{100};
constexpr std::chrono::milliseconds kInstallTimeout{5'000};
constexpr std::chrono::seconds kWaitForView{1};

// By rank. A member without a card gives an empty one, which cannot be read.
std::vector<Card> cards_in(const View& view) {
  std::vector<Card> cards;
  for (const MemberId member : view.members) {
    const auto found = view.cards.find(member);
    cards.push_back(found == view.cards.end() ? Card() : found->second);
  }
  return cards;
}

// The settings of a member in this epoch. Its secret is the key of its connections. Local ranks never change.
Config config_in(const Membership& membership, const View& view, const Config& config) {
  Config own = config;
  own.rank = membership.rank;
  own.size = membership.size();
  own.local_size = own.size == 1 ? 1 : local_size_in(cards_in(view), own.rank);
  own.key = view.secret;
  own.start_timeout = std::min(own.start_timeout, kInstallTimeout);
  return own;
}

std::optional<MemberId> member_at(const std::vector<MemberId>& members, int rank) {
  if (rank < 0 || static_cast<std::size_t>(rank) >= members.size()) return std::nullopt;
  return members[static_cast<std::size_t>(rank)];
}

Membership membership_in(const View& view, MemberId id) {
  const auto found = std::find(view.members.begin(), view.members.end(), id);
  if (found == view.members.end()) throw std::runtime_error("the view of the next epoch has no place for this rank");
  return {view.epoch, view.members, static_cast<int>(found - view.members.begin())};
}

}  // namespace

// A member that misses another one before the first epoch begins asks for a view, as it does later.
void Engine::join_job(const FirstLinks& first) {
  const Membership all = first_membership(config_);
  guard_ = std::make_unique<GuardLink>(config_.guard_fd, [this] { on_guard_message(); });
  if (config_.size > 1) open_door_ = doors_of(config_);
  for (std::optional<View> view;;) {
    const std::uint32_t epoch = view ? view->epoch : 0;
    const IsCancelled is_cancelled = [this, epoch] { return guard_->has_ended(epoch); };
    try {
      const Membership membership = view ? membership_in(*view, all.members[static_cast<std::size_t>(all.rank)]) : all;
      const Config config = view ? config_in(membership, *view, config_) : config_;
      Links links = view ? connect_to(*view, config, is_cancelled) : first(is_cancelled);
      epoch_ = std::make_shared<EpochState>(membership, config, std::move(links));
      fail_point("start.connected");
      {
        MutexLock lock(mutex_);
        lane_epoch_ = epoch;
      }
      publish(agree(epoch_));
      wake();  // for messages of the guard that came before, and for the first report
      fail_point("start.agreed");
      if (view) {
        const std::vector<int> rank_of = all.ranks_in(membership);
        tensor_table_.begin_epoch({epoch, rank(), membership.size(), rank_of, view->reason});
        tensor_table_.see(epoch);
      }
      return guard_->send(Installed{epoch});
    } catch (const PeerLost& lost) {
      Frozen frozen{epoch, {}, member_at(view ? view->members : all.members, lost.origin()), lost.what()};
      frozen.card = make_card();
      guard_->send(frozen);
    }
    view = next_view();
  }
}

// The guard may end an epoch while its members still agree on their settings.
void Engine::on_guard_message() {
  std::shared_ptr<EpochState> installing;
  {
    MutexLock lock(epoch_mutex_);
    installing = installing_;
  }
  if (installing && guard_->has_ended(installing->membership.epoch)) {
    installing->links.transport->abort(-1, "the epoch has ended before all its ranks had agreed");
  }
  wake();
}

Topology Engine::agree(const std::shared_ptr<EpochState>& next) {
  const auto set_installing = [this](std::shared_ptr<EpochState> epoch) {
    MutexLock lock(epoch_mutex_);
    installing_ = std::move(epoch);
  };
  set_installing(next);
  if (guard_->has_ended(next->membership.epoch)) next->links.transport->abort(-1, "the epoch has ended already");
  try {
    const Topology topology = open_lanes(*next);
    set_installing(nullptr);
    return topology;
  } catch (...) {
    set_installing(nullptr);
    throw;
  }
}

View Engine::next_view() {
  while (!guard_->is_closed()) {
    guard_->wait(Clock::now() + kWaitForView);
    while (const std::optional<GuardMessage> message = guard_->take()) {
      if (const auto* view = std::get_if<View>(&*message)) return *view;
      if (const auto* evicted = std::get_if<Evicted>(&*message)) throw PeerLost(config_.rank, evicted->reason);
      if (std::holds_alternative<Ask>(*message)) report(0);
    }
  }
  throw PeerLost(config_.rank, "the guard of the elastic job has ended");
}

// One by one: while a view is installed, the queue shows whether its epoch has ended.
void Engine::take_guard_messages() {
  while (const std::optional<GuardMessage> message = guard_->take()) {
    if (!ended_) std::visit([this](const auto& one) { take(one); }, *message);
  }
}

std::optional<TimePoint> Engine::notice() {
  const auto until = guard_ ? guard_->notice() : std::nullopt;
  if (until) knows_notice_ = true;
  return until;
}

void Engine::take(const Freeze& freeze) {
  if (frozen_ || freeze.epoch != epoch_->membership.epoch) return;
  const auto& members = epoch_->membership.members;
  const auto lost = freeze.lost ? std::find(members.begin(), members.end(), *freeze.lost) : members.end();
  this->freeze(lost == members.end() ? -1 : static_cast<int>(lost - members.begin()), freeze.reason, false);
}

void Engine::take(const Parked& parked) {
  log_warning(say("rank ", rank(), " is parked: ", parked.members, " of at least ", parked.needed, " ranks are left"));
}

// Of the present epoch, or of one that ends.
void Engine::take(const Missed& missed) {
  std::vector<int> ranks;
  const auto& members = epoch_->membership.members;
  for (const MemberId id : missed.members) {
    const auto found = std::find(members.begin(), members.end(), id);
    if (found != members.end()) ranks.push_back(static_cast<int>(found - members.begin()));
  }
  epoch_->detector.missed(ranks);
}

void Engine::take(const Evicted& evicted) {
  if (!frozen_) abort_epoch(rank(), evicted.reason);
  tensor_table_.close(failure_of(rank(), evicted.reason));
  end_after_freeze();
}

// A person has asked. That there is no memory for the answer must not end the epoch.
void Engine::report(std::uint32_t epoch) noexcept {
  try {
    TensorTable::InFlight in_flight = tensor_table_.in_flight();
    guard_->send(Report{epoch, counters_.committed_rounds(), counters_.committed_collectives(), in_flight.tensors,
                        std::move(in_flight.oldest)});
  } catch (const std::bad_alloc&) {
    log_warning("no memory to tell the guard the state of this rank");
  }
}

// A view comes when this rank is frozen: the guard has waited for it.
void Engine::take(const View& view) {
  if (!frozen_)
    return log_error(say("rank ", rank(), " got the view of epoch ", view.epoch, " while it is not frozen"));
  install(view);
}

// Its scripts may go on with what is delivered now, while this rank stays frozen.
void Engine::take(const Settle& message) {
  if (frozen_) settle(message.progress, message.effects);
}

void Engine::check_left(TimePoint now) {
  if (ended_ || frozen_ || left_rank_ < 0 || !tensor_table_.has_in_flight()) {
    left_since_.reset();
    return;
  }
  if (!left_since_) left_since_ = now;
  detector_deadline_ = std::min(detector_deadline_.value_or(TimePoint::max()), *left_since_ + kLeftPatience);
  if (now - *left_since_ >= kLeftPatience) freeze(left_rank_, say("rank ", left_rank_, " has left the job"), true);
}

// No buffer is in use after this, and what is complete here does not change any more.
// is_own: this rank misses `origin` itself. A report of what another rank told would blame the wrong link.
void Engine::freeze(int origin, const std::string& why, bool is_own) noexcept {
  fail_point("engine.freeze");
  bool is_whole = true;
  try {
    perform_pending();
  } catch (...) {
    is_whole = false;
  }
  frozen_ = true;
  set_between_epochs(true);
  detector_deadline_.reset();
  patience_.rest();
  timer_.reset();
  abort_epoch(origin, why);
  epoch_->lanes->join();
  is_settled_ = false;
  try {
    if (!is_whole) throw std::bad_alloc();
    const auto lost = is_own ? member_at(epoch_->membership.members, origin) : std::nullopt;
    report_frozen(epoch_->membership.epoch, why, lost);
    log_info(say("rank ", rank(), " is frozen in epoch ", epoch_->membership.epoch, ": ", why));
  } catch (...) {
    const FailurePtr failure = failure_in_freeze();
    leave_job(true, failure->text);
    tensor_table_.close(failure);
    end_after_freeze();
  }
}

// Called in a catch block.
FailurePtr Engine::failure_in_freeze() const noexcept {
  try {
    return peer_lost(rank(), with_rank(current_failure()->text));
  } catch (const std::bad_alloc&) {
    return no_memory_;
  }
}

// The other members of the next epoch connect to the door of this rank when they have got its card.
Card Engine::make_card() {
  door_ = {};
  if (open_door_) door_ = open_door_();
  return door_.card;
}

// The door is closed when all have connected, or some could not.
Links Engine::connect_to(const View& view, const Config& config, const IsCancelled& is_cancelled) {
  const Door door = std::exchange(door_, {});
  return connect_doors(config, view.epoch, door, cards_in(view), is_cancelled);
}

// After close(): this rank takes part no more.
void Engine::end_after_freeze() noexcept {
  ended_ = true;
  frozen_ = false;
  door_ = {};
  detector_deadline_.reset();
  patience_.rest();
  timer_.reset();
  stall_diagnosis_.close();
  set_between_epochs(false);
  fail_works();
}

// The coordinator counts the messages that it has applied, so what they cause is not left out.
void Engine::perform_pending() {
  std::vector<Event> more;
  perform(std::exchange(actions_, {}), more);
}

void Engine::report_frozen(std::uint32_t epoch, const std::string& why, std::optional<MemberId> lost) {
  Frozen frozen{epoch, {}, lost, why};
  if (!is_settled_) {
    frozen.progress = epoch_->lanes->progress();
    StreamEffects effects = epoch_->coordinator.effects();
    frozen.applied = effects.applied;
    frozen.forgotten = effects.forgotten;
    frozen.effects = std::move(effects.effects);
  }
  frozen.card = make_card();
  fail_point("engine.stopped");
  guard_->send(frozen);
  fail_point("engine.frozen");
}

void Engine::set_between_epochs(bool between) noexcept {
  MutexLock lock(mutex_);
  between_epochs_ = between;
  changed_.notify_all();
}

void Engine::wait_for_view() {
  guard_->wait(Clock::now() + kWaitForView);
  take_guard_messages();
  check_abort();
  publish_ready_times();
}

// What counts as done on the members that go on is delivered on all of them, and what the stream has changed on one of
// them changes on all of them.
void Engine::settle(const ProgressOf& progress, const Effects& missed) {
  if (std::exchange(is_settled_, true)) return;
  Actions effects;
  std::vector<Event> none;
  epoch_->coordinator.catch_up(missed, effects);
  perform(std::move(effects), none);
  const auto& members = epoch_->membership.members;
  epoch_->lanes->settle([&](std::uint32_t lane, const Commit& commit, const std::vector<int>& ranks) {
    std::vector<MemberId> participants;
    for (const int rank : ranks) participants.push_back(members[static_cast<std::size_t>(rank)]);
    return is_committed(progress, lane, commit.number, participants);
  });
}

// The first rank of the last epoch that is not in the next one; -1: none.
int Engine::lost_rank(const std::vector<int>& rank_of) {
  const auto lost = std::find(rank_of.begin(), rank_of.end(), -1);
  return lost == rank_of.end() ? -1 : static_cast<int>(lost - rank_of.begin());
}

void Engine::install(const View& view) {
  fail_point("engine.view");
  settle(view.progress, view.effects);
  fail_point("engine.settled");
  try {
    const std::shared_ptr<EpochState> next = connect(view);
    fail_point("engine.connected");
    const Topology topology = agree(next);
    fail_point("engine.agreed");
    const std::vector<int> rank_of = epoch_->membership.ranks_in(next->membership);
    enter_epoch(next);
    lost_rank_ = lost_rank(rank_of);
    if (std::exchange(has_nccl_error_, false) && lost_rank_ < 0) counters_.add_nccl_error();
    lost_reason_ = view.reason;
    const auto over = tensor_table_.begin_epoch({view.epoch, rank(), next->config.size, rank_of, view.reason});
    publish(topology);  // after the tensor table knows the epoch
    for (const Item& failed : over) failed.work->fail(failure_of(lost_rank_, view.reason));
    frozen_ = false;
    set_between_epochs(false);
    guard_->send(Installed{view.epoch});
    fail_point("engine.installed");
    log_info(say("rank ", rank(), " of ", next->config.size, " goes on in epoch ", view.epoch));
    wake();  // for the first report
  } catch (const PeerLost& lost) {
    report_frozen(view.epoch, lost.what(), member_at(view.members, lost.origin()));
  }
}

std::shared_ptr<EpochState> Engine::connect(const View& view) {
  const auto& before = epoch_->membership;
  const Membership membership = membership_in(view, before.members[static_cast<std::size_t>(before.rank)]);
  const Config config = config_in(membership, view, config_);
  const auto is_cancelled = [this, &view] { return guard_->has_ended(view.epoch) || is_leaving(); };
  Links links = connect_to(view, config, is_cancelled);
  return std::make_shared<EpochState>(membership, config, std::move(links), *epoch_);
}

void Engine::leave_job(bool failed, const std::string& why) noexcept {
  guard_->send(Leave{failed, why});
}

}  // namespace horo
