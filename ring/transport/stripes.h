// Stripes: the long messages between this rank and one peer, each cut into pieces that travel over several connections
// at once, as each of them has room. So one lost packet holds up one connection, and several windows are open. Pure
// bookkeeping without I/O, for whoever holds the transport's progress role.
//
// The first piece goes over the first connection, with the message's tag and whole length (FrameKind::kStriped): so
// messages of equal tags meet in the order of sending, as those do that are not cut. A later piece (kStripe) says which
// message it is of and where it lies there; one that comes before the first piece of its message stays unread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "horo/base/wire.h"
#include "ring/transport/op_table.h"

namespace horo {

class Stripes {
 public:
  static constexpr std::size_t kWholeBytes = 64 << 10;     // a message up to this long is not cut
  static constexpr std::size_t kLongestBytes = 256 << 10;  // of a piece

  // `width`: connections, at least 2.
  explicit Stripes(int width) : width_(static_cast<std::size_t>(width)) {}

  // Out. One message at a time has pieces that nobody has taken.
  static bool cuts(const Outgoing& message) { return message.op != 0 && message.bytes.size() > kWholeBytes; }
  // The first piece, for the first connection; all others have been taken.
  Outgoing begin(const Outgoing& message);
  bool has_more() const { return !rest_.empty(); }
  // The next piece, for any connection; has_more().
  Outgoing next();
  // A piece has gone out. Once all of its message have: the message, and what its frames were longer than it.
  struct Sent {
    Outgoing message;
    std::size_t frame_bytes = 0;
  };
  std::optional<Sent> sent(const Outgoing& piece, std::size_t frame_bytes);

  // In.
  // Throws ProtocolError if this can be no piece of a message, by what came before.
  void check(const Frame& piece) const;
  // This first piece is of a message that is to go there.
  void open(const Frame& first, const OpTable::Match& match);
  // Where a piece of an open message goes; nothing: it has to wait for the first one. Throws ProtocolError: it lies
  // outside of its message. Once for each piece that has a place.
  std::optional<OpTable::Match> place(const Frame& piece);
  bool is_receiving() const { return !incoming_.empty(); }
  // A message with this tag is coming in that has no receive yet: what comes behind it must not meet that one.
  bool is_early(const Tag& tag) const;
  // A piece has come in full. Once all of its message have: the message.
  struct Received {
    Tag tag;
    OpTable::Match match;
    std::vector<std::byte> own;  // of a message without a receive
    std::size_t frame_bytes = 0;
  };
  std::optional<Received> received(const Frame& piece, std::size_t frame_bytes);

  // Lets go of memory that belongs to operations of a plan, as DataConnection has it: what is left to send is copied,
  // what is left to come is dropped.
  void release(std::uint32_t channel, std::uint64_t plan);
  // Lets go of the memory of all operations; what nobody has taken is never sent.
  void drop_all() noexcept;

 private:
  struct Outbound {
    Outgoing message;             // without its bytes
    std::vector<std::byte> kept;  // of the rest, after a release
    std::uint64_t total = 0;
    std::size_t under_way = 0;  // pieces
    std::size_t frame_bytes = 0;
  };
  struct Inbound {
    Received message;
    std::uint64_t total = 0;
    std::uint64_t placed = 0;  // of it, never more
    std::uint64_t got = 0;     // of that
  };

  Outgoing take_piece();
  std::uint64_t number_of(const Frame& piece) const;

  const std::size_t width_;
  std::map<std::uint64_t, Outbound> outgoing_;  // by number
  std::uint64_t last_sent_ = 0;                 // its number
  std::span<const std::byte> rest_;             // of that message
  std::map<std::uint64_t, Inbound> incoming_;
  std::uint64_t last_opened_ = 0;
};

}  // namespace horo
