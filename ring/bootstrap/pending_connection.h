// One connection on its way: a handshake over a socket.
#pragma once

#include <cstddef>
#include <vector>

#include "horo/base/time.h"
#include "ring/os/socket.h"
#include "ring/transport/handshake.h"

namespace horo {

class PendingConnection {
 public:
  PendingConnection(Fd fd, Handshake handshake, TimePoint until)
      : fd_(std::move(fd)), handshake_(std::move(handshake)), until_(until) {}

  int fd() const { return fd_.get(); }
  TimePoint until() const { return until_; }
  const Handshake& handshake() const { return handshake_; }
  bool is_done() const { return handshake_.is_done() && output_.empty(); }
  // True once somebody answered with a whole frame, right or wrong.
  bool is_answered() const { return is_answered_; }
  Connection take();

  // What to poll for.
  short events();
  // It was accepted, or dialing has succeeded.
  void set_connected() { is_connected_ = true; }
  // Moves what can be moved. Throws ProtocolError; the connection is over then.
  void advance();

 private:
  void flush_handshake();
  bool write();
  bool read();

  Fd fd_;
  Handshake handshake_;
  TimePoint until_;
  bool is_connected_ = false, is_answered_ = false;
  std::vector<std::byte> output_, input_;
  std::size_t got_ = 0;
};

}  // namespace horo
