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
  // An accepted socket.
  PendingConnection(Fd fd, Handshake handshake, Duration hello_timeout)
      : fd_(std::move(fd)),
        handshake_(std::move(handshake)),
        hello_timeout_(hello_timeout),
        deadline_(Clock::now() + hello_timeout),
        is_connected_(true) {}
  // A socket that connects until `connect_by`. The time for the handshake begins when it is connected.
  PendingConnection(Fd fd, Handshake handshake, Duration hello_timeout, TimePoint connect_by)
      : fd_(std::move(fd)), handshake_(std::move(handshake)), hello_timeout_(hello_timeout), deadline_(connect_by) {}

  int fd() const { return fd_.get(); }
  // An acceptor that has proved itself holds this rank's proof, or closes the connection: there is no deadline then.
  TimePoint deadline() const { return handshake_.awaits_admission() ? TimePoint::max() : deadline_; }
  const Handshake& handshake() const { return handshake_; }
  bool is_done() const { return handshake_.is_done() && output_.empty(); }
  // True once the peer has answered with a whole frame, right or wrong.
  bool is_answered() const { return is_answered_; }
  // Hands the connection over; is_done().
  Connection take_connection();

  // The events to poll for.
  short events();
  bool is_connected() const { return is_connected_; }
  // Moves the bytes that can be moved. Throws ProtocolError; the connection can only be dropped then.
  void advance();
  // Tells a peer that has proved its identity that it is admitted: is_done() then. Throws ProtocolError.
  void admit();

 private:
  void throw_if_ended(const Moved& moved) const;
  void take_output();
  bool write();
  bool read();

  Fd fd_;
  Handshake handshake_;
  Duration hello_timeout_;
  TimePoint deadline_;
  bool is_connected_ = false, is_answered_ = false;
  std::vector<std::byte> output_, input_;
  std::size_t got_ = 0;  // bytes of input_
};

}  // namespace horo
