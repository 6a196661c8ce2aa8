// The sending half of a data connection: one frame at a time, at any point of its bytes, and the last frames of the
// connection behind it. Used by the holder of the transport's progress role alone.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "horo/base/wire.h"
#include "ring/transport/handshake.h"
#include "ring/transport/op_table.h"
#include "ring/transport/stream.h"

namespace horo {

class FrameWriter {
 public:
  // One call of Stream::send moves at most this much of a body, so that many peers share one thread fairly.
  static constexpr std::size_t kQuantumBytes = 288 << 10;
  // A payload up to this long is copied behind its header, because one contiguous piece costs the kernel less.
  static constexpr std::size_t kSmallBytes = 2 << 10;

  // `checks`: payloads carry a checksum.
  FrameWriter(const Identity& self, Stream& stream, bool checks) : self_(self), stream_(stream), checks_(checks) {}

  // Begins a message, or a stripe of one; no frame is being sent. The message's memory is used until take_sent()
  // returned it, or until a release.
  void begin_message(Outgoing message) { begin(std::move(message), FrameKind::kData); }
  // Begins an empty frame that the peer ignores; it keeps the connection from being idle.
  void begin_beat() { begin({}, FrameKind::kBeat); }
  // Queues a copy of the last bytes of the connection, an abort notice or a goodbye, behind the frame that is being
  // sent. No message may be begun after it.
  void begin_last(FrameKind kind, std::span<const std::byte> payload);
  // Frames that are begun from now on carry no checksum of their payload.
  void stop_checksums() { checks_ = false; }

  bool is_sending() const { return sending_.has_value(); }
  bool is_sending_op() const { return sending_ && sending_->op != 0; }  // from the memory of an operation
  bool has_unsent() const { return is_sending() || last_sent_ < last_.size(); }
  // Messages are sent completely and wait for the stream to settle them (Stream::unsettled).
  bool is_settling() const { return !settling_.empty(); }
  // A send has failed, or a message was cut off: nothing more can be sent.
  bool is_broken() const { return is_broken_; }
  // The bytes of a frame besides its payload.
  std::size_t frame_bytes() const { return kFrameBytes + (checks_ ? kChecksumBytes : 0); }

  // Calls Stream::send once; returns the number of bytes that it took.
  std::size_t write();
  // A message that was sent and settled; each is returned once.
  std::optional<Outgoing> take_sent();

  // If the frame is sent from the memory of an operation of that plan, copies the rest of it.
  void release(std::uint32_t channel, std::uint64_t plan);
  // The same for any operation. Where the rest is longer than 4 MiB it is not copied, and the connection is broken.
  void release_all();
  // The same without a copy: the connection is broken if it was sending a message of an operation.
  void drop_all() noexcept;

 private:
  // A sent message whose last byte is byte `end` of the connection.
  struct Settling {
    std::uint64_t end;
    Outgoing message;
  };

  void begin(Outgoing message, FrameKind kind);
  std::size_t end_of_frame() const { return frame_bytes() + sending_->bytes.size(); }
  void add_to_checksum(std::size_t end);
  std::size_t gather(std::array<iovec, 3>& parts);
  std::size_t write_last();
  void copy_rest();

  const Identity& self_;
  Stream& stream_;
  bool checks_;

  // A frame consists of its front (the header, and for a small frame all of it), its body and its tail (the checksum).
  std::optional<Outgoing> sending_;
  std::array<std::byte, kFrameBytes + kSmallBytes + kChecksumBytes> front_;
  std::size_t front_bytes_ = 0;
  ChecksumBytes tail_{};
  std::uint32_t checksum_ = 0;  // of the header and of the body so far
  std::size_t summed_ = 0;      // bytes of the body in it
  std::size_t sent_ = 0;        // bytes of the frame
  std::deque<Settling> settling_;
  std::uint64_t all_sent_ = 0;  // bytes of the connection
  std::vector<std::byte> last_;
  std::size_t last_sent_ = 0;
  bool is_broken_ = false;
};

}  // namespace horo
