// OpTable: matches messages with posted operations. Bookkeeping without I/O: a transport keeps one under its lock. The
// table gives the next message to send and the memory for an arriving message, and records which operations have ended.
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

// A message that arrived before its receive was posted.
struct EarlyMessage {
  Tag tag;
  std::vector<std::byte> bytes;
  std::size_t frame_bytes = 0;  // of its frames besides its bytes
};

// The end of a plan in which the tensors of two ranks differ.
struct PlanCancel {
  std::uint32_t channel = 0;
  std::uint64_t plan = 0;
  std::string why;
};

// The place of a stripe in its message (ring/transport/stripes.h).
struct Stripe {
  std::uint64_t number = 0;  // of the message
  std::uint64_t offset = 0;  // 0: the first stripe, which is sent before the others
  std::uint64_t total = 0;   // bytes of the message
};

// A message, or a stripe of one, that is to be sent: of an operation, or a notice of the table.
struct Outgoing {
  Transport::Op op = 0;  // 0: a notice, with its bytes in `notice`
  Tag tag;
  std::span<const std::byte> bytes;
  std::vector<std::byte> notice;
  std::optional<Stripe> stripe{};  // if this is a stripe
};

// The segment number of a notice that cancels its plan; the payload is the reason.
inline constexpr std::uint32_t kCancelSegment = 0xffffffff;

class OpTable {
 public:
  using Op = Transport::Op;

  OpTable(int size, std::size_t max_early_bytes);

  Op add_send(int peer, const Tag& tag, std::span<const std::byte> out);
  // If the message has arrived already it is moved to `early`; the caller copies it and then calls received().
  Op add_recv(int peer, const Tag& tag, std::span<std::byte> in, std::optional<EarlyMessage>& early);

  // The next message for a peer. Channels take turns, so that none waits until another has sent everything.
  std::optional<Outgoing> next_send(int peer);
  // The receive that the next message of the peer probably matches: the oldest posted one.
  struct Expected {
    Tag tag;
    std::span<std::byte> memory;
  };
  std::optional<Expected> expected(int peer) const;

  // The destination of an arriving message.
  enum class Place {
    kPosted,   // into the memory of the receive `op`
    kEarly,    // into memory of the transport, now counted as early bytes
    kDropped,  // nowhere: its plan is cancelled
    kRefused   // the limit of early bytes is reached: it stays unread until a receive is posted
  };
  struct Match {
    Place place = Place::kRefused;
    Op op = 0;
    std::span<std::byte> memory;
  };
  Match match(int peer, const Tag& tag, std::uint64_t length);
  // An early message is complete. If its receive was posted meanwhile, returns that one and leaves `early` to the
  // caller.
  Match keep(int peer, EarlyMessage& early);

  // A message of next_send() was sent completely.
  void sent(const Outgoing& message, std::size_t frame_bytes);
  void received(Op op, std::size_t frame_bytes) { end(op, frame_bytes); }

  // Plans in which the tensors of two ranks differ. The holder of the progress role takes them and calls cancel().
  std::vector<PlanCancel> take_cancels() { return std::exchange(cancels_, {}); }
  bool has_cancels() const { return !cancels_.empty(); }
  bool is_cancelled(std::uint32_t channel, std::uint64_t plan) const { return cancelled_.contains({channel, plan}); }
  // Ends all operations of the plan and queues a notice to every peer that took part in them.
  void cancel(const PlanCancel& cancel);

  // Notices that were not sent yet.
  std::size_t open_notices() const { return open_notices_; }

  // Returns true and forgets `ops` if all of them have ended. Throws Mismatch if one was cancelled, and forgets all
  // operations of its plan.
  bool finish(std::span<const Op> ops);
  // The peers of the operations in `ops` that have not ended, ascending.
  std::vector<int> waiting_for(std::span<const Op> ops) const;
  // The tag of the first operation in `ops` that has not ended.
  std::optional<Tag> first_open(std::span<const Op> ops) const;

  Traffic traffic(std::uint32_t channel) const;
  static constexpr std::size_t kMaxCancelled = 256;  // cancelled plans that are stored; the oldest is forgotten first

 private:
  using Key = std::tuple<std::uint32_t, std::uint64_t, std::uint32_t>;
  using PlanKey = std::pair<std::uint32_t, std::uint64_t>;

  struct Operation {
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
    std::size_t early_bytes = 0;                    // with headers, so that empty messages count as well
    std::map<std::uint32_t, std::deque<Op>> sends;  // by channel
    std::uint32_t last_channel = 0;
    std::deque<Outgoing> notices;
  };

  struct Cancelled {
    std::string why;
    std::vector<bool> is_notified;  // by rank
  };

  static std::size_t index(int peer) { return static_cast<std::size_t>(peer); }
  static Key key_of(const Tag& tag) { return {tag.channel, tag.plan, tag.segment}; }
  Op add(Operation operation);
  void notify(Cancelled& cancelled, int peer, const Tag& tag);
  Operation* find(Op op);
  const Operation* find(Op op) const { return const_cast<OpTable*>(this)->find(op); }
  void forget(Op op);
  void forget_plan(PlanKey plan);
  void end(Op op, std::size_t frame_bytes);
  Match settle(Op op, const Tag& tag, std::uint64_t length);
  void drop_plan(Peer& peer, PlanKey plan);

  std::size_t max_early_bytes_;
  std::uint64_t posted_ = 0;
  std::vector<Operation> operations_;
  std::vector<std::uint32_t> free_;
  std::vector<Peer> peers_;
  std::map<std::uint32_t, Traffic> traffic_;
  std::vector<PlanCancel> cancels_;
  std::map<PlanKey, Cancelled> cancelled_;
  std::deque<PlanKey> cancel_order_;
  std::size_t open_notices_ = 0;
};

}  // namespace horo
