// Striped messages: with HORO_TCP_WIDTH several connections lead to one peer, and a long message is cut into stripes
// that travel over all of them at once. That pays where the network limits the rate of each flow: with 1 Gbit/s per
// flow an all_reduce of 16 MiB takes 141 ms over one connection and 63 ms over four. With long round trips and packet
// loss, a loss delays one connection alone, but BBR gains more there. Bookkeeping without I/O, for the holder of the
// transport's progress role; a transport has one object for each peer with several connections.
//
// The first stripe goes over the first connection, with the message's tag and whole length (FrameKind::kStriped), so
// messages with equal tags match in the order of sending. A later stripe (kStripe) holds the number of its message and
// its offset; if it arrives before the first stripe of its message, its connection stays unread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "horo/base/wire.h"
#include "ring/transport/op_table.h"

namespace horo {

// Whether the frame carries a stripe.
inline bool is_stripe(const Frame& frame) {
  return frame.kind == FrameKind::kStriped || frame.kind == FrameKind::kStripe;
}
// Sets the fields by which the peer finds the stripe's message and its place in it.
void describe_stripe(const Stripe& stripe, Frame& frame);

// A message that has arrived: where its bytes are, and the bytes of its frames besides them.
struct ReceivedMessage {
  Tag tag;
  OpTable::Match match;
  std::vector<std::byte> own;  // the bytes of a message without a receive
  std::size_t frame_bytes = 0;
};

class Stripes {
 public:
  static constexpr std::size_t kWholeBytes = 64 << 10;     // messages up to this long are not cut
  static constexpr std::size_t kLongestBytes = 256 << 10;  // of a stripe

  // `width`: number of connections, at least 2.
  explicit Stripes(int width) : width_(static_cast<std::size_t>(width)) {}

  // Sending. Returns the next frame for a connection that sends none: a stripe of the message in progress, or, on the
  // first connection, the table's next message for the peer (whole, or its first stripe). Empty: none.
  std::optional<Outgoing> next(bool is_first_connection, OpTable& table, int peer);
  // A stripe was sent. If it completes its message, returns the message, and the bytes of its frames besides the
  // payload.
  struct Sent {
    Outgoing message;
    std::size_t frame_bytes = 0;
  };
  std::optional<Sent> on_sent(const Outgoing& stripe, std::size_t frame_bytes);

  // Receiving. Returns the memory for the payload of a stripe. Empty: the stripe has to wait for the first stripe of
  // its message or for an earlier message with its tag, or `match` refuses the message. `match` finds the place of a
  // whole message and is called for first stripes. Throws ProtocolError if the frame is no valid stripe.
  using MatchMessage = std::function<OpTable::Match(const Tag&, std::uint64_t length)>;
  std::optional<OpTable::Match> place(const Frame& stripe, bool is_first_connection, const MatchMessage& match);
  bool is_receiving() const { return !incoming_.empty(); }
  // A striped message with this tag is being received and has no receive yet: a later message must not overtake it.
  bool is_early(const Tag& tag) const;
  // A stripe has arrived. If it completes its message, returns the message.
  std::optional<ReceivedMessage> on_received(const Frame& stripe, std::size_t frame_bytes);

  // No longer uses the memory of operations of a plan: the unsent rest is copied, the missing rest is dropped.
  void release(std::uint32_t channel, std::uint64_t plan);
  // No longer uses the memory of any operation; the unsent rest is never sent.
  void drop_all() noexcept;

 private:
  struct Outbound {
    Outgoing message;               // without its bytes
    std::vector<std::byte> copied;  // the unsent rest, after a release
    std::uint64_t total = 0;
    std::size_t in_flight = 0;  // stripes that are being sent
    std::size_t frame_bytes = 0;
  };
  struct Inbound {
    ReceivedMessage message;
    std::uint64_t total = 0;
    std::uint64_t placed = 0;    // bytes of it, never more than total
    std::uint64_t received = 0;  // bytes of those
  };

  bool has_unsent() const { return !unsent_.empty(); }
  Outgoing begin(const Outgoing& message);
  Outgoing take_stripe();
  std::uint64_t number_of(const Frame& stripe) const;
  void check(const Frame& stripe) const;
  bool open(const Frame& first, const MatchMessage& match);
  std::optional<OpTable::Match> place_in_message(const Frame& stripe);

  const std::size_t width_;
  std::map<std::uint64_t, Outbound> outgoing_;  // by number
  std::uint64_t last_begun_ = 0;                // number of the message that unsent_ belongs to
  std::span<const std::byte> unsent_;           // bytes of it that are in no stripe yet
  std::map<std::uint64_t, Inbound> incoming_;
  std::uint64_t last_opened_ = 0;
};

}  // namespace horo
