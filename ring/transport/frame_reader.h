// The receiving half of a data connection: one frame at a time, at any point of its bytes. Used by the holder of the
// transport's progress role alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "horo/base/wire.h"
#include "ring/transport/handshake.h"
#include "ring/transport/op_table.h"
#include "ring/transport/stream.h"

namespace horo {

// Whether the frame carries a notice: an abort, a goodbye, a heartbeat or the cancellation of a plan.
bool is_notice(const Frame& frame);

// The frame that is being received, known from its header on.
struct Incoming {
  Frame frame;
  OpTable::Match match;
  std::vector<std::byte> own;  // memory for a message without a receive, or a notice
  std::size_t got = 0;         // bytes of the payload
};

class FrameReader {
 public:
  // Size of the read-ahead buffer, in which one call finds the headers of several small messages.
  static constexpr std::size_t kAheadBytes = 4096;
  using Expected = OpTable::Expected;

  FrameReader(const Identity& self, Stream& stream, int peer, std::uint32_t peer_incarnation);

  // Calls Stream::receive once. `expected`: a posted receive that the next message probably matches. Its memory belongs
  // to the reader until the next header is known; if the guess is right, header and payload take one call. Returns true
  // if bytes arrived or the stream ended. If it ended, is_closed() and error() say so.
  bool read(const std::optional<Expected>& expected);

  enum class Arrival { kNothing, kHeader, kMessage };
  // Call until it returns kNothing. After kHeader, incoming().frame is known, and place() or place_own() must follow;
  // until then next() returns kHeader again and the stream is not read. After kMessage, end_message() must follow.
  // Throws ProtocolError: the bytes are no frame of the peer, or a checksum is wrong.
  Arrival next();
  // The payload goes to the memory of the match; place_own(): to memory of incoming().
  void place(const OpTable::Match& match);
  void place_own();
  void end_message() { state_ = State::kHeader; }

  Incoming& incoming() { return in_; }
  // The bytes of the frame besides its payload.
  std::size_t frame_bytes() const { return in_.frame.bytes() - in_.frame.length; }
  bool is_within_frame() const { return state_ != State::kHeader; }
  bool is_stalled() const { return state_ == State::kUnplaced; }
  bool is_closed() const { return is_closed_; }
  int error() const { return error_; }  // the errno of the end; 0: the peer closed
  void set_closed() { is_closed_ = true; }

  // If the frame is received into the memory of an operation (of that plan), drops the rest of it.
  void release(std::uint32_t channel, std::uint64_t plan);
  void release_all() noexcept;

 private:
  enum class State { kHeader, kUnplaced, kBody };

  std::span<const std::byte> ahead() const { return std::span(ahead_).subspan(begin_, end_ - begin_); }
  void move_ahead_to_front();
  bool read_headers();
  bool read_body();
  bool read_expected();
  bool receive(std::span<iovec> parts, std::size_t& bytes);
  std::span<std::byte> rest_of_body();
  Arrival next_header();
  Arrival next_body();
  void settle_expected();
  void add_to_checksum(std::span<const std::byte> bytes);
  bool receives_for_op() const { return state_ == State::kBody && in_.match.place == OpTable::Place::kPosted; }

  const Identity& self_;
  Stream& stream_;
  const int peer_;
  const std::uint32_t peer_incarnation_;

  State state_ = State::kHeader;
  Incoming in_;
  std::uint32_t checksum_ = 0;
  bool is_dropping_ = false;  // the payload goes to waste_
  std::vector<std::byte> waste_;

  // Bytes that were received and not yet consumed: [begin_, end_). kAheadBytes long, and longer once a long message was
  // not the expected one.
  std::vector<std::byte> ahead_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;

  std::optional<Expected> expected_;  // the guess for the message whose header comes next
  std::size_t guessed_ = 0;           // bytes of it that were received into the expected memory
  int right_guesses_;                 // in a row

  bool is_closed_ = false;
  int error_ = 0;
};

}  // namespace horo
