// A connection whose handshake is in progress.
#pragma once

#include <cstddef>
#include <vector>

#include "horo/base/time.h"
#include "ring/os/socket.h"
#include "ring/transport/handshake.h"

namespace horo {

// No call blocks.
class PendingConnection {
 public:
  PendingConnection(Fd fd, Handshake handshake, TimePoint deadline)
      : fd_(std::move(fd)), handshake_(std::move(handshake)), deadline_(deadline) {}

  int fd() const { return fd_.get(); }
  TimePoint deadline() const { return deadline_; }
  const Handshake& handshake() const { return handshake_; }
  bool is_done() const { return handshake_.is_done() && output_.empty(); }
  // True once the peer has answered with a whole frame, right or wrong.
  bool is_answered() const { return is_answered_; }
  // Hands the connection over; is_done().
  Connection take_connection();

  // The events to poll for.
  short events();
  // The socket was accepted, or dialing has succeeded.
  void set_connected() { is_connected_ = true; }
  // Moves the bytes that can be moved. Throws ProtocolError; the connection can only be dropped then.
  void advance();

 private:
  void take_output();
  bool write();
  bool read();

  Fd fd_;
  Handshake handshake_;
  TimePoint deadline_;
  bool is_connected_ = false, is_answered_ = false;
  std::vector<std::byte> output_, input_;
  std::size_t got_ = 0;  // bytes of input_
};

}  // namespace horo
