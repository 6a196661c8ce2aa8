// OpTable: which message meets which posted operation. Pure bookkeeping without I/O: a transport keeps one under its
// lock, asks it what to send next and where an arriving message belongs, and tells it what has ended.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "horo/base/counters.h"
#include "ring/transport.h"

namespace horo {

// A message that came before its receive was posted.
struct EarlyMessage {
  Tag tag;
  std::vector<std::byte> bytes;
  std::size_t frame_bytes = 0;  // what its frames were longer than it
};

// The end of one plan that two ranks understood differently.
struct PlanCancel {
  std::uint32_t channel = 0;
  std::uint64_t plan = 0;
  std::string why;
};

// Where a piece lies in the message that it is of (ring/transport/stripes.h).
struct Stripe {
  std::uint64_t number = 0;  // of the message
  std::uint64_t offset = 0;  // 0: the first piece, which goes ahead of the others
  std::uint64_t total = 0;   // of the message's bytes
};

// A message, or a piece of one, that waits to be sent: of an operation, or a notice that the table itself wrote.
struct Outgoing {
  Transport::Op op = 0;  // 0: a notice, with its bytes in `notice`
  Tag tag;
  std::span<const std::byte> bytes;
  std::vector<std::byte> notice;
  std::optional<Stripe> stripe{};  // of a piece
};

// The segment number of a notice that cancels its plan; the payload says why.
inline constexpr std::uint32_t kCancelSegment = 0xffffffff;

class OpTable {
 public:
  using Op = Transport::Op;

  OpTable(int size, std::size_t max_early_bytes);

  Op add_send(int peer, const Tag& tag, std::span<const std::byte> out);
  // If the message is here already it is moved to `early`; the caller copies it and then calls received().
  Op add_recv(int peer, const Tag& tag, std::span<std::byte> in, std::optional<EarlyMessage>& early);

  // The next message for a peer, channels taking turns, so that none stands behind the whole of another.
  std::optional<Outgoing> next_send(int peer);
  // The posted receive that the peer's next message probably meets: the oldest.
  struct Expected {
    Tag tag;
    std::span<std::byte> memory;
  };
  std::optional<Expected> expected(int peer) const;

  // Where an arriving message goes.
  enum class Place {
    kPosted,   // into the memory of the receive `op`
    kEarly,    // into memory of the table's own (now counted as early)
    kDropped,  // nowhere: its plan was cancelled, or ends now
    kRefused   // there is no room: leave it unread until a receive is posted
  };
  struct Match {
    Place place = Place::kRefused;
    Op op = 0;
    std::span<std::byte> memory;
  };
  Match match(int peer, const Tag& tag, std::uint64_t length);
  // An early message is complete. If its receive was posted meanwhile that one is returned with `early` left as it is.
  Match keep(int peer, EarlyMessage& early);

  // A message of next_send() has gone out in full.
  void sent(const Outgoing& message, std::size_t frame_bytes);
  void received(Op op, std::size_t frame_bytes) { end(op, frame_bytes); }

  // Two ranks mean different things; whoever moves the bytes takes these and calls cancel().
  std::vector<PlanCancel> take_cancels() { return std::exchange(cancels_, {}); }
  bool has_cancels() const { return !cancels_.empty(); }
  bool is_cancelled(std::uint32_t channel, std::uint64_t plan) const { return cancelled_.contains({channel, plan}); }
  // Ends all operations of the plan and queues a notice to every peer that took part in them.
  void cancel(const PlanCancel& cancel);

  // Notices that have not gone out yet.
  std::size_t open_notices() const { return open_notices_; }

  // True if all have ended; they are forgotten then. Throws Mismatch if one was cancelled, forgetting all of its plan.
  bool finish(std::span<const Op> ops);
  // The peers that operations of `ops` still wait for, ascending.
  std::vector<int> waiting_for(std::span<const Op> ops) const;
  // The tag of the first of `ops` that has not ended.
  std::optional<Tag> first_open(std::span<const Op> ops) const;

  Traffic traffic(std::uint32_t channel) const;
  static constexpr std::size_t kMaxCancelled = 256;  // plans remembered, the oldest forgotten first

 private:
  using Key = std::tuple<std::uint32_t, std::uint64_t, std::uint32_t>;
  using PlanKey = std::pair<std::uint32_t, std::uint64_t>;

  struct Slot {
    std::uint32_t generation = 0;
    bool used = false;
    bool sends = false;
    bool ended = false;
    int peer = 0;
    std::uint64_t number = 0;  // in the order of posting
    Tag tag;
    std::span<const std::byte> out;
    std::span<std::byte> in;
    std::string mismatch;
  };
  struct Peer {
    std::multimap<Key, Op> posted;  // equal keys in the order of posting
    std::multimap<Key, EarlyMessage> early;
    std::size_t early_bytes = 0;                    // headers included, so that empty messages count as well
    std::map<std::uint32_t, std::deque<Op>> sends;  // by channel
    std::uint32_t last_channel = 0;
    std::deque<Outgoing> notices;
  };

  struct Cancelled {
    std::string why;
    std::vector<bool> told;  // by rank
  };

  static std::size_t index(int peer) { return static_cast<std::size_t>(peer); }
  static Key key_of(const Tag& tag) { return {tag.channel, tag.plan, tag.segment}; }
  Op add(Slot slot);
  void tell(Cancelled& cancelled, int peer, const Tag& tag);
  Slot* find(Op op);
  const Slot* find(Op op) const { return const_cast<OpTable*>(this)->find(op); }
  void forget(Op op);
  void forget_plan(PlanKey plan);
  void end(Op op, std::size_t frame_bytes);
  Match settle(Op op, const Tag& tag, std::uint64_t length);
  void drop_plan(Peer& peer, PlanKey plan);

  std::size_t max_early_bytes_;
  std::uint64_t posted_ = 0;
  std::vector<Slot> slots_;
  std::vector<std::uint32_t> free_;
  std::vector<Peer> peers_;
  std::map<std::uint32_t, Traffic> traffic_;
  std::vector<PlanCancel> cancels_;
  std::map<PlanKey, Cancelled> cancelled_;
  std::deque<PlanKey> cancel_order_;
  std::size_t open_notices_ = 0;
};

}  // namespace horo
