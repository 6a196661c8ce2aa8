// One peer's end of the data plane: a frame going out and a frame coming in, each at any point of its bytes. Touched
// only by the thread that moves bytes at the moment (the progress role of the transport).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "horo/base/wire.h"
#include "ring/transport/handshake.h"
#include "ring/transport/op_table.h"
#include "ring/transport/stream.h"

namespace horo {

// It brings a part of a message that travels over several connections.
inline bool is_piece(const Frame& frame) {
  return frame.kind == FrameKind::kStriped || frame.kind == FrameKind::kStripe;
}

// The frame that comes in, from its header on.
struct Incoming {
  Frame frame;
  OpTable::Match match;
  std::vector<std::byte> own;  // memory for a message without a receive
  std::size_t got = 0;
};

class DataConnection {
 public:
  // A socket call moves at most this much, so that many peers share one thread fairly.
  static constexpr std::size_t kQuantumBytes = 288 << 10;
  // A payload up to this long is copied behind its header and leaves with it as one piece, which costs the kernel less.
  static constexpr std::size_t kSmallBytes = 2 << 10;
  // Read but not looked at: headers and small messages cost one call.
  static constexpr std::size_t kAheadBytes = 4096;

  // `chunk_bytes`: of what goes through shared memory (Config::shm_chunk_bytes).
  DataConnection(Connection connection, const Identity& self, std::size_t chunk_bytes);

  int fd() const { return stream_->socket(); }
  bool is_memory() const { return stream_->is_memory(); }
  bool needs_looks() const { return stream_->needs_looks(); }
  int peer() const { return peer_; }
  bool is_first() const { return number_ == 0; }     // of those to its peer
  const std::string& name() const { return name_; }  // "rank 1: connection to rank 2"

  // Out.
  bool is_sending() const { return sending_.has_value(); }
  bool is_sending_op() const { return sending_ && sending_->op != 0; }  // from memory of its caller
  bool can_send() const { return !broken_ && !has_left_; }
  void begin_send(Outgoing message) { begin(std::move(message), FrameKind::kData); }
  // A frame without meaning, for a connection that is not to be idle.
  void begin_beat() { begin({}, FrameKind::kBeat); }
  // Queues bytes of our own behind the frame that is going out (an abort or goodbye); nothing may be begun after it.
  void begin_last(FrameKind kind, std::span<const std::byte> payload);
  // Frames that are begun from now on carry no checksum of their payload.
  void stop_checksums() { checks_ = false; }
  // Writes what the socket takes, once: how many bytes.
  std::size_t write();
  // A message that has gone out in full, once.
  std::optional<Outgoing> take_sent();
  // Messages have gone out whose way the stream has not ended yet.
  bool is_settling() const { return !settling_.empty(); }
  // What a frame that goes out, and the one that comes in, is longer than its payload.
  std::size_t frame_bytes() const { return kFrameBytes + (checks_ ? kChecksumBytes : 0); }
  std::size_t incoming_frame_bytes() const { return in_.frame.bytes() - in_.frame.length; }
  bool has_unsent() const { return is_sending() || last_sent_ < last_.size(); }
  void shut_down_writing() noexcept { stream_->end_sending(); }

  // In. read() takes what there is, once; then next() until it says kNothing. `expected`: a receive whose memory stays
  // the caller's to fill until then; a long message that meets it, as most do, takes one call with its header.
  enum class Arrival { kNothing, kHeader, kMessage };
  using Expected = OpTable::Expected;
  bool read(const std::optional<Expected>& expected = std::nullopt);
  Arrival next();
  // After kHeader: `incoming().frame` is known; say where the payload goes. Without that, next() says kHeader again and
  // the socket stays unread.
  void place(const OpTable::Match& match);
  void place_own();
  Incoming& incoming() { return in_; }
  void end_message() { state_ = State::kHeader; }
  bool is_in_frame() const { return state_ != State::kHeader; }  // between a header and the end of its payload
  bool is_stalled() const { return state_ == State::kUnplaced; }

  // Their messages have ended in good order, or the connection has.
  bool has_left() const { return has_left_; }
  void set_left() { has_left_ = true; }
  bool is_closed() const { return closed_; }

  // Around a sleep, as Stream has them; before_sleep() asks for what this connection can go on with.
  pollfd before_sleep() noexcept;
  pollfd before_last_sleep() noexcept { return stream_->before_sleep(POLLOUT); }
  short after_sleep(short revents) noexcept { return stream_->after_sleep(revents); }

  // Lets go of memory that belongs to operations of a plan: the rest of an outgoing frame is copied, of an incoming one
  // dropped.
  void release(std::uint32_t channel, std::uint64_t plan);
  // Lets go of the memory of all operations. Nothing more can be sent if too much would have to be copied.
  void release_all();
  // The same without a copy: nothing more can be sent if it was in the middle of it.
  void drop_all() noexcept;

 private:
  enum class State { kHeader, kUnplaced, kBody };

  void begin(Outgoing message, FrameKind kind);
  bool receives_for_op() const;
  void stop_receiving();
  void keep_outgoing();
  bool read_expected();
  void settle_expected();
  Arrival next_header();
  Arrival next_body();
  std::size_t write_last();
  std::size_t end_of_sending() const { return frame_bytes() + sending_->bytes.size(); }
  void sum_outgoing(std::size_t end);
  void sum_incoming(std::span<const std::byte> bytes);
  std::span<std::byte> rest() const;
  void on_end(int error);

  int peer_;
  int number_;
  std::uint32_t peer_incarnation_;
  Identity self_;
  std::string name_;
  bool checks_;
  std::unique_ptr<Stream> stream_;

  // A frame is its front (the header, and all of the rest if it is small), its body, and its tail (the checksum).
  std::optional<Outgoing> sending_;
  std::array<std::byte, kFrameBytes + kSmallBytes + kChecksumBytes> front_;
  std::size_t front_bytes_ = 0;
  ChecksumBytes tail_{};
  std::uint32_t out_sum_ = 0;  // of the header and of the body so far
  std::size_t summed_ = 0;     // of the body
  std::size_t sent_ = 0;       // of the frame
  struct Settling {
    std::uint64_t end;  // in the bytes of this connection
    Outgoing message;
  };
  std::deque<Settling> settling_;
  std::uint64_t all_sent_ = 0;  // bytes
  std::vector<std::byte> last_;
  std::size_t last_sent_ = 0;
  bool broken_ = false;  // writing failed: what is still to be read says why

  State state_ = State::kHeader;
  Incoming in_;
  std::uint32_t in_sum_ = 0;
  bool dropping_ = false;
  std::vector<std::byte> ahead_;  // kAheadBytes, and more once a long message was not the expected one
  std::size_t ahead_begin_ = 0;
  std::size_t ahead_end_ = 0;
  std::optional<Expected> expected_;  // with the message whose header comes next
  std::size_t guessed_ = 0;           // bytes of it that were read into the expected memory
  int right_guesses_ = 0;             // in a row
  std::vector<std::byte> waste_;
  bool has_left_ = false;
  bool closed_ = false;
};

}  // namespace horo
