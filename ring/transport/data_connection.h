// One data connection to a peer: a stream, and the frames that go out and come in over it. Used by the holder of the
// transport's progress role alone.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "horo/base/wire.h"
#include "ring/transport/frame_reader.h"
#include "ring/transport/frame_writer.h"
#include "ring/transport/handshake.h"
#include "ring/transport/stream.h"

namespace horo {

class DataConnection {
 public:
  // `chunk_bytes`: of data through shared memory (Config::shm_chunk_bytes).
  DataConnection(Connection connection, const Identity& self, std::size_t chunk_bytes);

  int fd() const { return stream_->socket(); }
  bool is_memory() const { return stream_->is_memory(); }
  int peer() const { return peer_; }
  bool is_first() const { return number_ == 0; }     // of the connections to its peer
  const std::string& name() const { return name_; }  // "rank 1: connection to rank 2"

  FrameWriter& out() { return out_; }
  const FrameWriter& out() const { return out_; }
  FrameReader& in() { return in_; }
  const FrameReader& in() const { return in_; }

  bool can_send() const { return !out_.is_broken() && !has_left_; }
  std::size_t write() { return can_send() ? out_.write() : 0; }
  void shut_down_writing() noexcept { stream_->end_sending(); }

  // FrameReader::read and next(), where the end of the stream without a goodbye, and bytes that are no frame of the
  // peer, throw PeerLost.
  bool read(const std::optional<OpTable::Expected>& expected = std::nullopt);
  FrameReader::Arrival next();
  // The error for bytes of the peer that break the protocol.
  [[noreturn]] void throw_ended(const std::string& why) const;

  // The peer has sent its goodbye: the end of the stream is no loss, and nothing more is sent.
  void set_left() { has_left_ = true; }
  bool has_ended_well() const { return has_left_ && in_.is_closed(); }

  // Called around a sleep, see Stream. before_sleep() returns the events that let this connection continue,
  // before_last_sleep() only room to send.
  pollfd before_sleep() noexcept;
  pollfd before_last_sleep() noexcept { return stream_->before_sleep(POLLOUT); }
  short after_sleep(short revents) noexcept { return stream_->after_sleep(revents); }

  // The connection no longer uses the memory of operations: of a plan, or of all. See FrameWriter and FrameReader.
  void release(std::uint32_t channel, std::uint64_t plan);
  void release_all();
  void drop_all() noexcept;

 private:
  void on_end(int error);

  const int peer_;
  const int number_;
  const Identity self_;
  const std::string name_;
  std::unique_ptr<Stream> stream_;
  FrameWriter out_;
  FrameReader in_;
  bool has_left_ = false;
};

using DataConnections = std::vector<std::unique_ptr<DataConnection>>;

}  // namespace horo
