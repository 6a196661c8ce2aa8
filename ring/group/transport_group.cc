// TransportGroup: checks a collective, chooses how to run it (shared memory, two-level, or a schedule over messages),
// runs it in the calling thread and counts it.

#include <algorithm>
#include <array>
#include <atomic>
#include <map>
#include <numeric>
#include <optional>
#include <stdexcept>

#include "horo/base/check.h"
#include "horo/base/error.h"
#include "horo/base/failure.h"
#include "horo/base/say.h"
#include "ring/algorithms/messages.h"
#include "ring/algorithms/schedule_run.h"
#include "ring/algorithms/shm/collectives.h"
#include "ring/group/choose.h"
#include "ring/group/host_memory.h"
#include "ring/group/schedule_cache.h"
#include "ring/group/two_level.h"
#include "ring/links.h"
#include "ring/reduce/kernels.h"

namespace horo {
namespace {

constexpr const char* kShm = "shm";
constexpr std::size_t kKinds = static_cast<std::size_t>(CollectiveKind::kJoin) + 1;

class TransportGroup final : public Group, public ShardedGroup {
 public:
  TransportGroup(Transport& transport, Members members, const Config& config, Counters& counters)
      : transport_(transport),
        members_(std::move(members)),
        index_(index_in(members_.ranks, transport.rank())),
        segment_bytes_(std::max<std::size_t>(1, config.segment_bytes)),
        prices_{members_.costs, segment_bytes_},
        schedules_(size(), index_, members_.hosts, read_overrides(config.algorithms), prices_),
        counters_(counters),
        is_two_level_(TwoLevel::has_levels(members_.hosts)),
        most_slots_(slots_for(members_.hosts, members_.costs)),
        allows_shm_(is_shm_allowed(config)),
        patience_(patience_for(config.local_size, true)),
        past_caches_(config.shm_past_caches) {
    kernels_in_use();  // throws now if HORO_KERNELS is wrong
    for (std::size_t i = 0; i < kKinds; ++i) {
      shm_kinds_[i] = allows_shm_ && schedules_.overrides().allow_shm(static_cast<CollectiveKind>(i));
    }
  }

  int rank() const override { return index_; }
  int size() const override { return static_cast<int>(members_.ranks.size()); }

  // In this rank's arena, from which other members read without a copy.
  Allocation allocate(std::size_t bytes) override {
    if (const auto arenas = allows_shm_ ? members_.arenas : nullptr) {
      if (Allocation shared = arenas->own()->allocate(bytes); shared.data) return shared;
    }
    return allocate_here(bytes);
  }

  bool takes_pieces(const Collective& c) const override {
    if (!may_use_shm(c)) return false;
    const Channel& channel = channel_of(c);
    return channel.shm ? ShmCollectives::takes_pieces(c) : channel.two_level && TwoLevel::takes_pieces(c);
  }

  // Every small tensor takes this path, so code that seldom runs is kept out of line.
  void run(const Collective& collective) override {
    check(collective, size(), index_);
    if (!collective.pieces.empty()) check_pieces(collective);
    try {
      if (!run_in_memory(collective)) run_by_messages(collective);
    } catch (...) {
      failure_of(collective)->raise();
    }
  }

  ShardedGroup* sharded() override { return this; }

  std::size_t shard_bytes(const Collective& c) const override {
    if (!may_use_shm(c) || !ShmCollectives::takes_shards(c) || !channel_of(c).shm) return 0;
    return ShmCollectives::layout_for(c, size()).shard_bytes(index_);
  }

  Allocation allocate_shard(std::size_t bytes) override {
    return members_.arenas ? members_.arenas->own()->allocate_lasting(bytes) : Allocation();
  }

  bool reduce_to_shards(const Collective& collective, Buffer shard, ShardedResult& result) override {
    check(collective, size(), index_);
    HORO_CHECK(shard_bytes(collective) > 0 && (shard.data == nullptr || shard.bytes >= shard_bytes(collective)));
    try {
      Channel& channel = channel_of(collective);
      if (!channel.shm->reduce_to_shards(collective, shard, result)) return false;
      count_in_memory(channel, collective);
      return true;
    } catch (...) {
      failure_of(collective)->raise();
    }
  }

  std::string_view algorithm(const Collective& c) const override {
    if (may_use_shm(c)) {
      const Channel& channel = channel_of(c);
      if (channel.shm) return kShm;
      if (channel.two_level) return kTwoLevel;
    }
    if (c.kind == CollectiveKind::kBarrier) return "dissemination";
    if (c.kind == CollectiveKind::kSendRecv) return "message";
    return schedules_.name_for(c);
  }

 private:
  struct Channel;

  static int index_in(const std::vector<int>& members, int rank) {
    const auto found = std::lower_bound(members.begin(), members.end(), rank);
    const bool ascending = std::adjacent_find(members.begin(), members.end(), std::greater_equal<>()) == members.end();
    if (ascending && found != members.end() && *found == rank) return static_cast<int>(found - members.begin());
    throw std::invalid_argument(
        say("a group of ", say_ranks(members), ": expected ascending ranks, rank ", rank, " among them"));
  }

  GroupContext context() { return {transport_, members_.ranks, index_, segment_bytes_, scratch_, most_slots_}; }

  // ---- Running a collective.

  [[gnu::noinline]] void check_pieces(const Collective& collective) const {
    if (takes_pieces(collective)) return;
    throw std::invalid_argument(say(name_of(collective.kind), ": pieces where none are taken"));
  }

  // Of the exception that is being handled.
  [[gnu::noinline]] FailurePtr failure_of(const Collective& collective) {
    try {
      throw;
    } catch (const PeerLost& lost) {
      // A loss that was announced has the same text on all ranks. One that was seen here names the collective.
      const bool is_seen_here = lost.evidence() != Evidence::kTold && !collective.what.empty();
      const std::string what = is_seen_here ? say(" in ", name_of(collective.kind), " of ", collective.what) : "";
      return peer_lost(lost.origin(), lost.what() + what, lost.evidence());
    } catch (const Mismatch&) {
      return current_failure();
    } catch (const std::exception&) {
      // Messages with the caller's memory are still posted. Only the end of the transport ends them.
      FailurePtr failure = current_failure();
      const std::string where =
          say(name_of(collective.kind), collective.what.empty() ? "" : " of " + collective.what, ": ");
      transport_.abort(transport_.rank(), say("rank ", transport_.rank(), " failed in ",
                                              failure->text.starts_with(where) ? "" : where, failure->text));
      return failure;
    }
  }

  // Returns false, and does nothing, if the members share no memory for this collective.
  bool run_in_memory(const Collective& collective) {
    if (!may_use_shm(collective)) return false;
    Channel& channel = channel_of(collective);
    if (!channel.is_open) open(channel, collective);
    if (channel.shm) {
      channel.shm->run(collective);
      count_in_memory(channel, collective);
      return true;
    }
    if (channel.two_level) run_two_level(channel, collective);
    return channel.two_level != nullptr;
  }

  void count_in_memory(Channel& channel, const Collective& collective) {
    Counters::Tally*& tally = channel.tallies[static_cast<std::size_t>(collective.kind)];
    if (tally == nullptr) tally = &counters_.tally(members_.set, collective.kind, kShm);
    tally->add(payload_bytes(collective));
  }

  [[gnu::noinline]] void run_two_level(Channel& channel, const Collective& collective) {
    count(collective, [&] { return channel.two_level->run(collective), kTwoLevel; });
  }

  [[gnu::noinline]] void run_by_messages(const Collective& collective) {
    count(collective, [&] { return exchange(collective); });
  }

  // Counts what run() sends, under the name of the algorithm that it returns.
  template <class Run>
  void count(const Collective& collective, Run run) {
    const Traffic before = transport_.traffic(collective.channel);
    const std::string_view name = run();
    counters_.add_collective(members_.set, collective.kind, name, payload_bytes(collective),
                             transport_.traffic(collective.channel) - before);
  }

  // Returns the name of the algorithm.
  std::string_view exchange(const Collective& collective) {
    const GroupContext context = this->context();
    if (collective.kind == CollectiveKind::kBarrier) {
      barrier(context, collective);
      return "dissemination";
    }
    if (collective.kind == CollectiveKind::kSendRecv) {
      exchange(as_broadcast(collective));
      return "message";
    }
    LastSchedule& last = channel_of(collective).last;
    if (!last.is_for(collective)) last = LastSchedule(collective, schedules_.schedule_for(collective));
    run_schedule(context, collective, *last.schedule);
    return last.schedule->name;
  }

  // A send_recv is a broadcast between two members. The output of its sender stays as it is.
  Collective as_broadcast(Collective message) const {
    message.kind = CollectiveKind::kBroadcast;
    if (message.root == index_) message.out = message.in;
    return message;
  }

  // ---- Channels.

  // The schedule of the channel's last collective, which most often is that of its next one.
  struct LastSchedule {
    LastSchedule() = default;
    LastSchedule(const Collective& c, std::shared_ptr<const Schedule> chosen)
        : kind(c.kind),
          dtype(c.dtype),
          op(c.op),
          order(c.order),
          root(c.root),
          counts(c.counts),
          contributors(c.contributors),
          schedule(std::move(chosen)) {}

    CollectiveKind kind{};
    DType dtype{};
    ReduceOp op{};
    Order order{};
    int root = 0;
    std::vector<std::size_t> counts{};
    std::vector<std::int64_t> contributors{};
    std::shared_ptr<const Schedule> schedule{};

    // A custom operation may differ from that of the last collective.
    bool is_for(const Collective& c) const {
      return schedule && c.custom == nullptr && kind == c.kind && dtype == c.dtype && op == c.op && order == c.order &&
             root == c.root && counts == c.counts && contributors == c.contributors;
    }
  };

  // The state of one channel. Owned by the thread that runs the channel's collectives.
  struct Channel {
    explicit Channel(std::uint32_t number) : number(number) {}
    const std::uint32_t number;
    bool is_open = false;  // the members have exchanged the offsets of their control blocks
    // Offsets of this member's and of all members' control blocks. They are here because messages that an error leaves
    // in flight use them until the transport ends.
    std::int64_t offset = kNoBlock;
    std::vector<std::int64_t> offsets{};
    // One of these, or none if some member does not map all arenas of its host.
    std::unique_ptr<ShmCollectives> shm;
    std::unique_ptr<TwoLevel> two_level;
    std::vector<int> ranks_of_host{};                // on this host
    std::array<Counters::Tally*, kKinds> tallies{};  // by kind; null: not counted yet
    LastSchedule last;                               // of collectives that went by messages
  };
  static constexpr std::int64_t kNoBlock = -1;

  // Most groups have one channel, whose thread finds it without a lock.
  Channel& channel_of(const Collective& c) const {
    Channel* last = last_channel_.load(std::memory_order_acquire);
    return last != nullptr && last->number == c.channel ? *last : look_up_channel(c.channel);
  }

  [[gnu::noinline]] Channel& look_up_channel(std::uint32_t number) const {
    MutexLock lock(mutex_);
    Channel* const found = &channels_.try_emplace(number, number).first->second;
    last_channel_.store(found, std::memory_order_release);
    return *found;
  }

  // Whether the collective runs in shared memory if the members share any. Equal on all members.
  bool may_use_shm(const Collective& c) const {
    if (!shm_kinds_[static_cast<std::size_t>(c.kind)]) return false;
    if (!is_two_level_) return ShmCollectives::takes(c);
    return TwoLevel::takes(c, members_.hosts, schedules_.overrides().names.contains(c.kind));
  }

  // Equal on all members.
  bool is_shm_allowed(const Config& config) const {
    const bool is_one_host =
        std::adjacent_find(members_.hosts.begin(), members_.hosts.end(), std::not_equal_to<>()) == members_.hosts.end();
    return config.transport != "tcp" && size() > 1 && size() <= ShmCollectives::kMostMembers &&
           (is_one_host || is_two_level_);
  }

  // The members on this member's host, itself among them, by index.
  std::vector<int> members_of_host() const {
    std::vector<int> found;
    for (int member = 0; member < size(); ++member) {
      const auto at = static_cast<std::size_t>(member), own = static_cast<std::size_t>(index_);
      if (!is_two_level_ || members_.hosts[at] == members_.hosts[own]) found.push_back(member);
    }
    return found;
  }

  // At a channel's first collective all members announce the offsets of their control blocks. A member without one (it
  // does not map all arenas of its host, or its arena is full) announces kNoBlock, and all members use messages. A
  // member that is alone on its host needs none and announces 0.
  [[gnu::noinline]] void open(Channel& channel, const Collective& first) {
    channel.is_open = true;
    const auto& arenas = members_.arenas;
    const std::vector<int> neighbours = members_of_host();
    for (const int member : neighbours) channel.ranks_of_host.push_back(rank_of(member));
    const bool sees_all = arenas && std::all_of(channel.ranks_of_host.begin(), channel.ranks_of_host.end(),
                                                [&](int rank) { return arenas->sees(rank); });
    const bool is_alone = neighbours.size() == 1;
    Allocation block =
        sees_all && !is_alone ? ShmSync::make_control_block(*arenas->own(), neighbours.size()) : Allocation();
    const auto offset = block.data ? arenas->own()->offset_of(block.data.get(), block.bytes) : std::nullopt;
    channel.offset = offset ? static_cast<std::int64_t>(*offset) : is_alone ? 0 : kNoBlock;
    gather_offsets(channel, first);
    if (std::find(channel.offsets.begin(), channel.offsets.end(), kNoBlock) != channel.offsets.end()) return;
    if (!is_two_level_) {
      channel.shm = std::make_unique<ShmCollectives>(context(), arenas, std::move(block), channel.offsets, patience_);
      channel.shm->set_past_caches(past_caches_);
      return;
    }
    auto memory = is_alone ? nullptr : make_sync(channel, neighbours, std::move(block));
    channel.two_level = std::make_unique<TwoLevel>(context(), members_.hosts, prices_, std::move(memory));
  }

  std::unique_ptr<ShmSync> make_sync(Channel& channel, const std::vector<int>& neighbours, Allocation block) {
    std::vector<std::int64_t> offsets;
    for (const int member : neighbours) offsets.push_back(channel.offsets[static_cast<std::size_t>(member)]);
    const auto index = std::lower_bound(neighbours.begin(), neighbours.end(), index_) - neighbours.begin();
    const GroupContext host{transport_, channel.ranks_of_host, static_cast<int>(index), segment_bytes_, scratch_};
    auto sync = std::make_unique<ShmSync>(host, members_.arenas, std::move(block), offsets, patience_);
    sync->set_past_caches(past_caches_);
    sync->move_messages();
    return sync;
  }

  void gather_offsets(Channel& channel, const Collective& first) {
    channel.offsets.resize(members_.ranks.size());
    Collective gather = first;
    gather.kind = CollectiveKind::kAllGather;
    gather.dtype = DType::kInt64;
    gather.counts.assign(channel.offsets.size(), 1);
    gather.in = {reinterpret_cast<std::byte*>(&channel.offset), sizeof(channel.offset)};
    gather.out = {reinterpret_cast<std::byte*>(channel.offsets.data()), channel.offsets.size() * sizeof(std::int64_t)};
    exchange(gather);
  }

  int rank_of(int member) const { return members_.ranks[static_cast<std::size_t>(member)]; }

  Transport& transport_;
  const Members members_;
  const int index_;
  const std::size_t segment_bytes_;
  const Prices prices_;
  mutable ScheduleCache schedules_;
  Counters& counters_;
  const bool is_two_level_;
  const std::size_t most_slots_;
  const bool allows_shm_;
  std::array<bool, kKinds> shm_kinds_{};  // by kind: whether shared memory may run it
  const WaitPatience patience_;
  const std::string past_caches_;
  ScratchPool scratch_;
  mutable Mutex mutex_;
  mutable std::map<std::uint32_t, Channel> channels_ GUARDED_BY(mutex_);  // by number
  mutable std::atomic<Channel*> last_channel_{nullptr};                   // of channels_, published when complete
};

}  // namespace

std::unique_ptr<Group> make_transport_group(Transport& transport, Members members, const Config& config,
                                            Counters& counters) {
  return std::make_unique<TransportGroup>(transport, std::move(members), config, counters);
}

std::unique_ptr<Group> make_transport_group(const Links& links, Members members, const Config& config,
                                            Counters& counters) {
  members.arenas = links.arenas;
  return make_transport_group(*links.transport, std::move(members), config, counters);
}

}  // namespace horo
