// The transport of ranks that are threads: sends and receives match in a table that all ranks share, and bytes are
// copied under its lock. A send ends when its receive has the bytes, so an algorithm that relies on buffering in
// between hangs here first.
//
// Transports with independent lifetimes share the table, hence the shared_ptr.

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <tuple>
#include <utility>

#include "horo/base/check.h"
#include "horo/base/error.h"
#include "horo/base/mutex.h"
#include "horo/base/patience.h"
#include "horo/base/say.h"
#include "horo/base/wire.h"
#include "ring/transport.h"

namespace horo {
namespace {

using Op = Transport::Op;
using PlanKey = std::pair<std::uint32_t, std::uint64_t>;

struct Posted {
  int rank = 0;
  int peer = 0;
  bool sends = false;
  Tag tag;
  std::span<const std::byte> out;
  std::span<std::byte> in;
  bool ended = false;
  std::string mismatch;
};

class SharedOps {
 public:
  explicit SharedOps(int size) : ranks_(static_cast<std::size_t>(size)) {}
  int size() const { return static_cast<int>(ranks_.size()); }

  Op post(Posted one) {
    MutexLock lock(mutex_);
    throw_if_failed(one.rank);
    HORO_CHECK(one.peer >= 0 && one.peer < size() && one.peer != one.rank);
    const Op op = ++last_op_;
    const auto& cancelled = at(one.rank).cancelled;
    const auto dead = cancelled.find({one.tag.channel, one.tag.plan});
    if (dead != cancelled.end()) {
      one.ended = true;
      one.mismatch = dead->second;
    }
    if (one.ended) cancel(one.peer, one.tag, one.mismatch);
    const Op partner = one.ended ? 0 : find_partner(one);
    if (partner == 0 && !one.ended) open_[matching_key(one.rank, one.peer, one.sends, one.tag)].push_back(op);
    ops_.emplace(op, std::move(one));
    if (partner != 0) match(ops_.at(op).sends ? op : partner, ops_.at(op).sends ? partner : op);
    return op;
  }

  void wait(int rank, std::span<const Op> ops, TimePoint deadline) {
    MutexLock lock(mutex_);
    while (true) {
      throw_if_failed(rank);
      if (finish(ops)) return;
      check_peers(rank, ops, deadline);
      throw_if_failed(rank);
      at(rank).changed.wait_until(mutex_, Clock::now() + kWaitSlice);
    }
  }

  void abort(const PeerLost& error) {
    MutexLock lock(mutex_);
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) fail(static_cast<int>(rank), error);
  }

  void leave(int rank) {
    MutexLock lock(mutex_);
    at(rank).has_left = true;
    std::erase_if(ops_, [&](const auto& entry) { return entry.second.rank == rank; });
    for (Rank& other : ranks_) other.changed.notify_all();
  }

  Traffic traffic(int rank, std::uint32_t channel) {
    MutexLock lock(mutex_);
    return at(rank).traffic[channel];
  }

 private:
  struct Rank {
    std::optional<PeerLost> failed;
    bool has_left = false;
    std::map<std::uint32_t, Traffic> traffic;
    std::map<PlanKey, std::string> cancelled;
    CondVar changed;  // operations of this rank have ended
  };

  Rank& at(int rank) REQUIRES(mutex_) { return ranks_[static_cast<std::size_t>(rank)]; }

  void throw_if_failed(int rank) REQUIRES(mutex_) {
    if (at(rank).failed) throw PeerLost(*at(rank).failed);
  }

  // All operations of the rank end; their memory is no longer used.
  void fail(int rank, const PeerLost& error) REQUIRES(mutex_) {
    if (!at(rank).failed) at(rank).failed.emplace(error);
    std::erase_if(ops_, [&](const auto& entry) { return entry.second.rank == rank; });
    at(rank).changed.notify_all();
  }

  // The oldest open operation of the peer with the same tag and the other direction. Operations that have ended
  // meanwhile are removed from the queue.
  Op find_partner(const Posted& one) REQUIRES(mutex_) {
    const auto found = open_.find(matching_key(one.peer, one.rank, !one.sends, one.tag));
    if (found == open_.end()) return 0;
    Op partner = 0;
    std::deque<Op>& queue = found->second;
    while (partner == 0 && !queue.empty()) {
      const auto posted = ops_.find(queue.front());
      if (posted != ops_.end() && !posted->second.ended) partner = queue.front();
      queue.pop_front();
    }
    if (queue.empty()) open_.erase(found);
    return partner;
  }

  using MatchKey = std::tuple<int, int, bool, std::uint32_t, std::uint64_t, std::uint32_t>;
  static MatchKey matching_key(int rank, int peer, bool sends, const Tag& tag) {
    return {rank, peer, sends, tag.channel, tag.plan, tag.segment};
  }

  void match(Op send_op, Op recv_op) REQUIRES(mutex_) {
    Posted& send = ops_.at(send_op);
    Posted& recv = ops_.at(recv_op);
    if (send.tag.key_hash != recv.tag.key_hash) {
      return cancel(recv.rank, recv.tag,
                    say("channel ", recv.tag.channel, ", plan ", recv.tag.plan, ": rank ", send.rank,
                        " runs other tensors under this plan (key hash ", std::hex, send.tag.key_hash, ", expected ",
                        recv.tag.key_hash, ")"));
    }
    if (send.out.size() != recv.in.size()) {
      return cancel(recv.rank, recv.tag,
                    say("channel ", recv.tag.channel, ", plan ", recv.tag.plan, ": rank ", send.rank, " sent ",
                        send.out.size(), " bytes, expected ", recv.in.size()));
    }
    if (!send.out.empty()) std::memcpy(recv.in.data(), send.out.data(), send.out.size());
    send.ended = recv.ended = true;
    const std::size_t bytes = kFrameBytes + send.out.size();
    at(send.rank).traffic[send.tag.channel] += {bytes, 0, 1, 0};
    at(recv.rank).traffic[recv.tag.channel] += {0, bytes, 0, 1};
    at(send.rank).changed.notify_all();
    at(recv.rank).changed.notify_all();
  }

  // Ends the plan for this rank and for every rank that takes part in it.
  void cancel(int rank, const Tag& tag, const std::string& why) REQUIRES(mutex_) {
    if (!at(rank).cancelled.emplace(PlanKey{tag.channel, tag.plan}, why).second) return;
    std::vector<int> peers;
    for (auto& [op, one] : ops_) {
      if (one.tag.channel != tag.channel || one.tag.plan != tag.plan || one.rank != rank) continue;
      if (!one.ended) one.mismatch = why;
      one.ended = true;
      peers.push_back(one.peer);
    }
    at(rank).changed.notify_all();
    for (const int peer : peers) cancel(peer, tag, why);
  }

  bool finish(std::span<const Op> ops) REQUIRES(mutex_) {
    std::string mismatch;
    for (const Op op : ops) {
      const Posted& one = ops_.at(op);
      if (!one.ended) return false;
      if (!one.mismatch.empty()) mismatch = one.mismatch;
    }
    std::optional<Posted> last;
    for (const Op op : ops) {
      last = ops_.at(op);
      ops_.erase(op);
    }
    if (mismatch.empty()) return true;
    std::erase_if(ops_, [&](const auto& entry) {
      const Posted& one = entry.second;
      return one.rank == last->rank && one.tag.channel == last->tag.channel && one.tag.plan == last->tag.plan;
    });
    throw Mismatch(mismatch);
  }

  void check_peers(int rank, std::span<const Op> ops, TimePoint deadline) REQUIRES(mutex_) {
    std::vector<int> waiting;
    const Posted* first = nullptr;
    for (const Op op : ops) {
      const Posted& one = ops_.at(op);
      if (one.ended) continue;
      if (first == nullptr) first = &one;
      waiting.push_back(one.peer);
      if (!at(one.peer).has_left) continue;
      return fail(rank,
                  PeerLost(one.peer, say("rank ", rank, ": rank ", one.peer, " left while messages were waited for")));
    }
    if (!has_passed(deadline)) return;
    std::sort(waiting.begin(), waiting.end());
    waiting.erase(std::unique(waiting.begin(), waiting.end()), waiting.end());
    fail(rank, PeerLost(waiting.front(),
                        say("rank ", rank, ": still waiting for ", say_ranks(waiting), " on channel ",
                            first->tag.channel, ", plan ", first->tag.plan, " at the deadline (HORO_DEADLINE_MS)"),
                        Evidence::kLate));
  }

  Mutex mutex_;
  Op last_op_ GUARDED_BY(mutex_) = 0;
  std::map<Op, Posted> ops_ GUARDED_BY(mutex_);
  std::map<MatchKey, std::deque<Op>> open_ GUARDED_BY(mutex_);  // operations without a partner, oldest first
  std::vector<Rank> ranks_;
};

class InProcessTransport final : public Transport {
 public:
  InProcessTransport(std::shared_ptr<SharedOps> shared, int rank) : ops_table_(std::move(shared)), rank_(rank) {}
  ~InProcessTransport() override { ops_table_->leave(rank_); }

  int rank() const override { return rank_; }
  int size() const override { return ops_table_->size(); }
  Op post_send(int peer, const Tag& tag, std::span<const std::byte> out) override {
    return ops_table_->post({rank_, peer, true, tag, out, {}, false, ""});
  }
  Op post_recv(int peer, const Tag& tag, std::span<std::byte> in) override {
    return ops_table_->post({rank_, peer, false, tag, {}, in, false, ""});
  }
  void wait(std::span<const Op> ops, TimePoint deadline) override { ops_table_->wait(rank_, ops, deadline); }
  void abort(int origin, const std::string& reason) noexcept override {
    try {
      ops_table_->abort(PeerLost(origin, reason));
    } catch (const std::bad_alloc&) {
      ops_table_->abort(no_memory_);
    }
  }
  Traffic traffic(std::uint32_t channel) const override { return ops_table_->traffic(rank_, channel); }
  std::uint64_t kernel_bytes_sent_to(int /*peer*/) const override { return 0; }

 private:
  std::shared_ptr<SharedOps> ops_table_;
  int rank_;
  const PeerLost no_memory_{
      rank_,
      say("rank ", rank_, ": out of memory (std::bad_alloc)")};  // made in advance, because making it takes memory
};

}  // namespace

std::vector<std::unique_ptr<Transport>> make_in_process_transports(int size) {
  const auto shared = std::make_shared<SharedOps>(size);
  std::vector<std::unique_ptr<Transport>> transports;
  for (int rank = 0; rank < size; ++rank) transports.push_back(std::make_unique<InProcessTransport>(shared, rank));
  return transports;
}

}  // namespace horo
