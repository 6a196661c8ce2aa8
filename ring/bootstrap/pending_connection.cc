// Reads exactly the bytes of one hello at a time, into a buffer of limited size.
#include "ring/bootstrap/pending_connection.h"

#include <poll.h>

#include <span>
#include <system_error>

#include "horo/base/error.h"

namespace horo {
Connection PendingConnection::take_connection() {
  Connection connection{std::move(fd_), handshake_.peer(), handshake_.peer_incarnation(), handshake_.purpose()};
  connection.number = handshake_.number();
  return connection;
}

short PendingConnection::events() {
  take_output();
  return static_cast<short>((output_.empty() ? 0 : POLLOUT) | (is_connected_ && handshake_.wants() > 0 ? POLLIN : 0));
}

void PendingConnection::advance() {
  if (!is_connected_) {
    if (const int error = error_of(fd())) throw ProtocolError(std::generic_category().message(error));
    is_connected_ = true;
    deadline_ = Clock::now() + hello_timeout_;
  }
  while (write() || read()) {
  }
}

// The socket is new and has taken a few hundred bytes at most, so it takes the last hello whole.
void PendingConnection::admit() {
  handshake_.admit();
  write();
  if (!output_.empty()) throw ProtocolError("its connection takes no bytes");
}

void PendingConnection::throw_if_ended(const Moved& moved) const {
  if (!moved.ended) return;
  if (moved.error != 0) throw ProtocolError(std::generic_category().message(moved.error));
  throw ProtocolError(handshake_.awaits_admission() ? "it proved the job key and did not admit this rank (has another "
                                                      "process the same rank?)"
                                                    : "it closed the connection (another job, epoch, size or key?)");
}

void PendingConnection::take_output() {
  const auto more = handshake_.take_output();
  output_.insert(output_.end(), more.begin(), more.end());
}

bool PendingConnection::write() {
  take_output();
  if (output_.empty()) return false;
  iovec part = as_iovec(output_);
  const Moved moved = send_some(fd(), {&part, 1});
  throw_if_ended(moved);
  output_.erase(output_.begin(), output_.begin() + static_cast<std::ptrdiff_t>(moved.bytes));
  return moved.bytes > 0;
}

bool PendingConnection::read() {
  if (handshake_.wants() == 0) return false;
  input_.resize(handshake_.wants());
  iovec part = as_iovec(std::span(input_).subspan(got_));
  const Moved moved = receive_some(fd(), {&part, 1});
  throw_if_ended(moved);
  got_ += moved.bytes;
  if (got_ < input_.size()) return false;
  got_ = 0;
  is_answered_ = true;
  handshake_.feed(input_);
  return true;
}

}  // namespace horo
