// Accepted connections whose handshake is in progress. A connection is a stranger's until its first hello proves the
// job key. The hello of an honest peer is there when its connection is accepted, or a moment later, so a stranger has a
// descriptor and a few hundred bytes for at most the hello timeout, and for a shorter time where many connect: their
// number is limited, and the oldest one of the address with the most is dropped for a new one. No stranger takes the
// place of a peer whose first hello proves the key. A copy of that hello gives a place to one connection only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <set>
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
  // Admits a peer that has proved its identity, and takes the connection over. Throws ProtocolError: the peer is not
  // expected.
  using Admit = std::function<void(PendingConnection&)>;

  PendingAccepts(const Identity& self, Duration hello_timeout, Admit admit);

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
  struct Accepted {
    PendingConnection connection;
    std::uint64_t source;     // of the peer's address
    bool is_stranger = true;  // no first hello has proved the job key, or another connection has had this hello
  };
  using Place = std::list<Accepted>::iterator;

  void accept(Fd fd);
  bool advance(Place place);
  void count_call(Accepted& one);
  bool drop_stranger(const char* why);
  void drop(Place place, const std::string& why);
  void forget(Place place);
  void forget_stranger(Accepted& one);
  bool make_room(int error);

  const Identity& self_;
  const Duration hello_timeout_;
  const Admit admit_;
  const std::size_t most_strangers_;
  std::list<Accepted> pending_;  // the oldest first
  std::size_t strangers_ = 0;
  std::map<std::uint64_t, std::size_t> strangers_from_;  // by source
  std::set<Mac> calls_;                                  // of all connections so far
  std::size_t dropped_ = 0;
  std::string first_dropped_;
};

}  // namespace horo
