// Accepted connections of unauthenticated peers. Each holds a few hundred bytes for at most the hello timeout. Their
// number is limited; where a new one finds no room the oldest is dropped, because an honest handshake takes
// milliseconds.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "horo/base/time.h"
#include "ring/bootstrap/pending_connection.h"
#include "ring/bootstrap/poll_set.h"

namespace horo {

// The reason to refuse a connection before any of its bytes is read: its other end belongs to another user. "": none.
std::string foreign_user(int fd);

class PendingAccepts {
 public:
  // Takes over a connection whose handshake has ended. Throws ProtocolError: the peer is not expected.
  using Admit = std::function<void(PendingConnection&)>;

  PendingAccepts(const Identity& self, Duration hello_timeout, Admit admit)
      : self_(self), hello_timeout_(hello_timeout), admit_(std::move(admit)) {}

  // Adds every handshake in progress. The functions move its bytes, and admit or drop it.
  void add_to(PollSet& polls);
  // Accepts the connections that wait at a listener. Throws std::system_error where this process has no descriptor
  // left for any.
  void accept_all(int listener);
  void drop_late(TimePoint now);
  // The deadline of the oldest handshake, or `latest` if that is earlier.
  TimePoint next_deadline(TimePoint latest) const;

  std::size_t dropped() const { return dropped_; }
  // "from 10.0.0.7:4711: <reason>", of the first dropped connection.
  const std::string& first_dropped() const { return first_dropped_; }

 private:
  void advance(PendingConnection& pending);
  void drop(const PendingConnection& pending, const std::string& why);
  void drop_oldest(const std::string& why) { drop(*pending_.front(), why); }
  void forget(const PendingConnection& pending);
  bool make_room(int error);

  const Identity& self_;
  const Duration hello_timeout_;
  const Admit admit_;
  std::vector<std::unique_ptr<PendingConnection>> pending_;  // the oldest first
  std::size_t dropped_ = 0;
  std::string first_dropped_;
};

}  // namespace horo
