// The group over a Transport: checks, chooses the schedule, counts. It runs a collective in the thread that starts it.

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <map>
#include <new>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <tuple>

#include "horo/base/check.h"
#include "horo/base/error.h"
#include "horo/base/failure.h"
#include "horo/base/say.h"
#include "ring/algorithms/messages.h"
#include "ring/algorithms/schedule_run.h"
#include "ring/algorithms/shm/collectives.h"
#include "ring/group/choose.h"
#include "ring/group/two_level.h"
#include "ring/links.h"
#include "ring/reduce/custom_op.h"
#include "ring/reduce/kernels.h"

namespace horo {

namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::size_t kMostSchedules = 64;  // kept
constexpr std::size_t kMostChoices = 4096;
constexpr const char* kInRoom = "shm";
constexpr std::size_t kKinds = static_cast<std::size_t>(CollectiveKind::kJoin) + 1;

std::size_t payload_bytes(const Collective& c) {
  if (c.kind == CollectiveKind::kAllReduce) return c.counts[0] * size_of(c.dtype);
  if (c.kind == CollectiveKind::kBarrier) return 0;
  return std::accumulate(c.counts.begin(), c.counts.end(), std::size_t{0}) * size_of(c.dtype);
}

class TransportGroup final : public Group {
 public:
  TransportGroup(Transport& transport, Members members, const Config& config, Counters& counters)
      : transport_(transport),
        members_(std::move(members)),
        index_(index_in(members_.ranks, transport.rank())),
        overrides_(read_wishes(config.algorithms)),
        segment_bytes_(std::max<std::size_t>(1, config.segment_bytes)),
        prices_{members_.costs, segment_bytes_},
        counters_(counters),
        has_levels_(TwoLevel::has_levels(members_.hosts)),
        most_slots_(slots_for(members_.hosts, members_.costs)),
        allows_room_(room_is_allowed(config)),
        patience_(patience_for(config.local_size, true)),
        past_caches_(config.shm_past_caches) {
    kernels_in_use();  // a wrong HORO_KERNELS is said at the start
    for (std::size_t i = 0; i < kKinds; ++i) {
      in_rooms_[i] = allows_room_ && overrides_.allow_room(static_cast<CollectiveKind>(i));
    }
  }

  int rank() const override { return index_; }
  int size() const override { return static_cast<int>(members_.ranks.size()); }

  // What the members see need not travel. Other large buffers start on a huge page, which the kernel then fills in one
  // fault.
  Allocation allocate(std::size_t bytes) override {
    if (const auto arenas = allows_room_ ? members_.arenas : nullptr) {
      if (Allocation shared = arenas->allocate(bytes); shared.data) return shared;
    }
    const std::align_val_t alignment{bytes >= kHugePageBytes ? kHugePageBytes : kAlignment};
    auto* data = static_cast<std::byte*>(::operator new(std::max<std::size_t>(bytes, 1), alignment));
    if (bytes >= kHugePageBytes) ::madvise(data, bytes, MADV_HUGEPAGE);
    return {{data, [alignment](std::byte* memory) { ::operator delete(memory, alignment); }}, bytes};
  }

  bool takes_pieces(const Collective& c) const override {
    if (!may_meet(c)) return false;
    const Room& room = room_of(c.channel);
    return room.room ? ShmCollectives::takes_pieces(c) : room.levels && TwoLevel::takes_pieces(c);
  }

  void run(const Collective& collective) override {
    if (const FailurePtr failure = perform(collective)) failure->raise();
  }

  std::string_view algorithm(const Collective& collective) const override {
    if (const Room* room = may_meet(collective) ? &room_of(collective.channel) : nullptr) {
      if (room->room) return kInRoom;
      if (room->levels) return kTwoLevel;
    }
    if (collective.kind == CollectiveKind::kBarrier) return "dissemination";
    if (collective.kind == CollectiveKind::kSendRecv) return "message";
    const Shape shape = shape_of(collective, size(), members_.hosts);
    if (const auto* given = given_for(collective, shape, overrides_)) return given->front().name;
    return maker_for(collective, shape).name;
  }

 private:
  // To its end; null: it went well. Small tensors notice how long this takes, so what is seldom done stands beside it.
  FailurePtr perform(const Collective& collective) {
    check(collective, size(), index_);
    if (!collective.pieces.empty()) check_pieces(collective);
    try {
      if (!meets_in_room(collective)) exchange(collective);
      return nullptr;
    } catch (...) {
      return failure_of(collective);
    }
  }

  [[gnu::noinline]] void check_pieces(const Collective& collective) const {
    if (takes_pieces(collective)) return;
    throw std::invalid_argument(say(name_of(collective.kind), ": pieces where none are taken"));
  }

  // Where it is caught.
  [[gnu::noinline]] FailurePtr failure_of(const Collective& collective) {
    try {
      throw;
    } catch (const PeerLost& lost) {
      // What somebody else has judged is said with the same words everywhere.
      const bool is_mine = lost.evidence() != Evidence::kTold && !collective.what.empty();
      const std::string what = is_mine ? say(" in ", name_of(collective.kind), " of ", collective.what) : "";
      return peer_lost(lost.origin(), lost.what() + what, lost.evidence());
    } catch (const Mismatch&) {
      return current_failure();
    } catch (const std::exception&) {
      // Messages of this collective are still posted with the caller's memory; only the end of the transport ends them.
      FailurePtr failure = current_failure();
      const std::string where =
          say(name_of(collective.kind), collective.what.empty() ? "" : " of " + collective.what, ": ");
      transport_.abort(transport_.rank(), say("rank ", transport_.rank(), " failed in ",
                                              failure->text.starts_with(where) ? "" : where, failure->text));
      return failure;
    }
  }

  static int index_in(const std::vector<int>& members, int rank) {
    const auto found = std::lower_bound(members.begin(), members.end(), rank);
    const bool ascending = std::adjacent_find(members.begin(), members.end(), std::greater_equal<>()) == members.end();
    if (ascending && found != members.end() && *found == rank) return static_cast<int>(found - members.begin());
    throw std::invalid_argument(
        say("a group of ", say_ranks(members), ": expected ascending ranks, rank ", rank, " among them"));
  }

  // Of two members; who sends keeps what he has.
  Collective as_broadcast(Collective message) const {
    message.kind = CollectiveKind::kBroadcast;
    if (message.root == index_) message.out = message.in;
    return message;
  }

  Party party() { return {transport_, members_.ranks, index_, segment_bytes_, scratch_, most_slots_}; }

  struct Room;

  // Equal on all members.
  bool may_meet(const Collective& c) const {
    if (!in_rooms_[static_cast<std::size_t>(c.kind)]) return false;
    return has_levels_ ? TwoLevel::takes(c, members_.hosts) : ShmCollectives::takes(c);
  }

  // False: there is no room for it.
  bool meets_in_room(const Collective& collective) {
    if (!may_meet(collective)) return false;
    Room& room = room_of(collective.channel);
    if (!room.has_met) open(room, collective);
    if (room.room) {
      room.room->run(collective);
      Counters::Tally*& tally = room.tallies[static_cast<std::size_t>(collective.kind)];
      if (tally == nullptr) tally = &counters_.tally(members_.set, collective.kind, kInRoom);
      tally->add(payload_bytes(collective));
      return true;
    }
    if (room.levels) run_levels(room, collective);
    return room.levels != nullptr;
  }

  [[gnu::noinline]] void run_levels(Room& room, const Collective& collective) {
    count(collective, [&] { return room.levels->run(collective), kTwoLevel; });
  }

  [[gnu::noinline]] void exchange(const Collective& collective) {
    count(collective, [&] { return move(collective); });
  }

  // What run() sends, under the name that it says.
  template <class Run>
  void count(const Collective& collective, Run run) {
    const Traffic before = transport_.traffic(collective.channel);
    const std::string_view name = run();
    counters_.add_collective(members_.set, collective.kind, name, payload_bytes(collective),
                             transport_.traffic(collective.channel) - before);
  }

  // Says by which algorithm.
  std::string_view move(const Collective& collective) {
    const Party party = this->party();
    if (collective.kind == CollectiveKind::kBarrier) {
      barrier(party, collective);
      return "dissemination";
    }
    if (collective.kind == CollectiveKind::kSendRecv) {
      move(as_broadcast(collective));
      return "message";
    }
    Choice& choice = room_of(collective.channel).choice;
    if (!choice.is_for(collective)) choice = choose_for(collective);
    run_schedule(party, collective, *choice.schedule);
    return choice.schedule->name;
  }

  // Equal on all members.
  bool room_is_allowed(const Config& config) const {
    const bool one_host =
        std::adjacent_find(members_.hosts.begin(), members_.hosts.end(), std::not_equal_to<>()) == members_.hosts.end();
    return config.transport != "tcp" && size() > 1 && size() <= ShmCollectives::kMostMembers &&
           (one_host || has_levels_);
  }

  // Who shares this member's host, itself among them, by index.
  std::vector<int> mates() const {
    std::vector<int> mates;
    for (int member = 0; member < size(); ++member) {
      const auto at = static_cast<std::size_t>(member), me = static_cast<std::size_t>(index_);
      if (!has_levels_ || members_.hosts[at] == members_.hosts[me]) mates.push_back(member);
    }
    return mates;
  }

  // What a channel ran last, which is what it runs next as a rule.
  struct Choice {
    CollectiveKind kind{};
    DType dtype{};
    ReduceOp op{};
    Order order{};
    int root = 0;
    std::vector<std::size_t> counts{};
    std::vector<std::int64_t> contributors{};
    std::shared_ptr<const Schedule> schedule{};

    // An operation of the user's own may be another one each time.
    bool is_for(const Collective& c) const {
      return schedule && c.custom == nullptr && kind == c.kind && dtype == c.dtype && op == c.op && order == c.order &&
             root == c.root && counts == c.counts && contributors == c.contributors;
    }
  };

  // Of one channel, so of one thread.
  struct Room {
    explicit Room(std::uint32_t of) : channel(of) {}
    const std::uint32_t channel;
    bool has_met = false;
    // Of the boards, this member's and all: messages that an error leaves in flight use them until the transport ends.
    std::int64_t place = -1;
    std::vector<std::int64_t> places{};
    // After the meeting one of them, or none: some member sees not all arenas of its host.
    std::unique_ptr<ShmCollectives> room;
    std::vector<int> mates{};  // ranks of this host
    std::unique_ptr<TwoLevel> levels;
    std::array<Counters::Tally*, kKinds> tallies{};  // by kind; null: not yet
    Choice choice;                                   // of what went by messages
  };

  // Most groups have one channel, whose thread finds its room without a lock.
  Room& room_of(std::uint32_t channel) const {
    Room* last = last_room_.load(std::memory_order_acquire);
    return last != nullptr && last->channel == channel ? *last : look_up_room(channel);
  }

  [[gnu::noinline]] Room& look_up_room(std::uint32_t channel) const {
    MutexLock lock(mutex_);
    Room* const last = &rooms_.try_emplace(channel, channel).first->second;
    last_room_.store(last, std::memory_order_release);
    return *last;
  }

  // The first time, all members tell each other where their boards are; those who see the arenas of their host.
  [[gnu::noinline]] void open(Room& one, const Collective& first) {
    one.has_met = true;
    const auto arenas = members_.arenas;
    const std::vector<int> mates = this->mates();
    for (const int mate : mates) one.mates.push_back(members_.ranks[static_cast<std::size_t>(mate)]);
    const bool sees_all =
        arenas && std::all_of(one.mates.begin(), one.mates.end(), [&](int rank) { return arenas->sees(rank); });
    const bool is_alone = mates.size() == 1;
    Allocation board = sees_all && !is_alone ? ShmSync::make_board(*arenas) : Allocation();
    const auto place = board.data ? arenas->offset_of(board.data.get(), board.bytes) : std::nullopt;
    one.place = place ? static_cast<std::int64_t>(*place) : is_alone ? 0 : -1;
    gather_places(one, first);
    if (std::find(one.places.begin(), one.places.end(), -1) != one.places.end()) return;
    if (!has_levels_) {
      one.room = std::make_unique<ShmCollectives>(party(), arenas, std::move(board), one.places, patience_);
      one.room->set_past_caches(past_caches_);
      return;
    }
    std::vector<std::int64_t> boards;
    for (const int mate : mates) boards.push_back(one.places[static_cast<std::size_t>(mate)]);
    const auto mine = std::lower_bound(mates.begin(), mates.end(), index_) - mates.begin();
    const Party host{transport_, one.mates, static_cast<int>(mine), segment_bytes_, scratch_};
    auto feed = is_alone ? nullptr : std::make_unique<ShmFeed>(host, arenas, std::move(board), boards, patience_);
    if (feed) feed->set_past_caches(past_caches_);
    one.levels = std::make_unique<TwoLevel>(party(), members_.hosts, prices_, std::move(feed));
  }

  void gather_places(Room& one, const Collective& first) {
    one.places.resize(members_.ranks.size());
    Collective meeting = first;
    meeting.kind = CollectiveKind::kAllGather;
    meeting.dtype = DType::kInt64;
    meeting.counts.assign(one.places.size(), 1);
    meeting.in = {reinterpret_cast<std::byte*>(&one.place), sizeof(one.place)};
    meeting.out = {reinterpret_cast<std::byte*>(one.places.data()), one.places.size() * sizeof(one.place)};
    move(meeting);
  }

  Choice choose_for(const Collective& c) {
    const Shape shape = shape_of(c, size(), members_.hosts);
    const auto* given = given_for(c, shape, overrides_);
    auto schedule = given != nullptr ? std::make_shared<const Schedule>((*given)[static_cast<std::size_t>(index_)])
                                     : schedule_for(c, shape);
    return {c.kind, c.dtype, c.op, c.order, c.root, c.counts, c.contributors, std::move(schedule)};
  }

  // Asked once for what has the same answer.
  const NamedMaker& maker_for(const Collective& c, const Shape& shape) const {
    if (overrides_.names.contains(c.kind)) return choose(c, shape, overrides_, prices_);
    const bool is_custom = c.op == ReduceOp::kCustom, is_whole = c.custom != nullptr && c.custom->whole;
    const ChoiceKey key{c.kind, c.order, is_custom, is_whole, c.dtype, priced_bytes(c, size()), shape.contributors};
    {
      MutexLock lock(mutex_);
      if (const auto found = choices_.find(key); found != choices_.end()) return *found->second;
    }
    const NamedMaker& chosen = choose(c, shape, overrides_, prices_);
    MutexLock lock(mutex_);
    if (choices_.size() >= kMostChoices) choices_.clear();
    return *choices_.emplace(key, &chosen).first->second;
  }
  using ChoiceKey = std::tuple<CollectiveKind, Order, bool, bool, DType, std::size_t, std::vector<std::int64_t>>;

  // Made once and kept; a new shape (somebody is absent, another root) makes another one.
  std::shared_ptr<const Schedule> schedule_for(const Collective& collective, const Shape& shape) {
    const NamedMaker& maker = maker_for(collective, shape);
    const ScheduleKey key{shape.kind, maker.name, shape.root, shape.contributors};
    MutexLock lock(mutex_);
    if (const auto found = schedules_.find(key); found != schedules_.end()) return found->second;
    if (schedules_.size() >= kMostSchedules) schedules_.clear();
    const auto made = std::make_shared<const Schedule>(maker.make(shape, index_));
    schedules_.emplace(key, made);
    return made;
  }

  using ScheduleKey = std::tuple<CollectiveKind, std::string, int, std::vector<std::int64_t>>;

  Transport& transport_;
  const Members members_;
  const int index_;
  const AlgorithmOverrides overrides_;
  const std::size_t segment_bytes_;
  const Prices prices_;
  Counters& counters_;
  const bool has_levels_;
  const std::size_t most_slots_;
  const bool allows_room_;
  std::array<bool, kKinds> in_rooms_{};  // by kind: whether there may be a room for it
  const WaitPatience patience_;
  const std::string past_caches_;
  ScratchPool scratch_;
  mutable Mutex mutex_;
  mutable std::map<std::uint32_t, Room> rooms_ GUARDED_BY(mutex_);  // by channel
  mutable std::atomic<Room*> last_room_{nullptr};                   // published after it was made
  std::map<ScheduleKey, std::shared_ptr<const Schedule>> schedules_ GUARDED_BY(mutex_);
  mutable std::map<ChoiceKey, const NamedMaker*> choices_ GUARDED_BY(mutex_);
};

}  // namespace

std::unique_ptr<Group> make_host_group(Transport& transport, Members members, const Config& config,
                                       Counters& counters) {
  return std::make_unique<TransportGroup>(transport, std::move(members), config, counters);
}

std::unique_ptr<Group> make_host_group(const Links& links, Members members, const Config& config, Counters& counters) {
  members.arenas = links.arenas;
  return make_host_group(*links.transport, std::move(members), config, counters);
}

}  // namespace horo
