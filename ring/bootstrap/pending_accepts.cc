#include "ring/bootstrap/pending_accepts.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <optional>
#include <system_error>

#include "horo/base/error.h"
#include "horo/base/say.h"
#include "ring/os/descriptors.h"

namespace horo {
namespace {

// Half of the free descriptors remain for the peers and for what else the process opens.
constexpr std::size_t kLeastStrangers = 8, kMostStrangers = 512;
constexpr std::size_t kMostAtOnce = 512;

}  // namespace

std::string foreign_user(int fd) {
  const std::optional<uid_t> user = peer_user(fd);
  if (!user || *user == ::geteuid()) return "";
  return say("the socket's other end belongs to user ", *user, ", expected user ", ::geteuid());
}

PendingAccepts::PendingAccepts(const Identity& self, Duration hello_timeout, Admit admit)
    : self_(self),
      hello_timeout_(hello_timeout),
      admit_(std::move(admit)),
      most_strangers_(std::clamp<std::size_t>(free_descriptors() / 2, kLeastStrangers, kMostStrangers)) {}

void PendingAccepts::add_to(PollSet& polls) {
  for (Place place = pending_.begin(); place != pending_.end(); ++place) {
    polls.add(place->connection.fd(), place->connection.events(), [this, place] { advance(place); });
  }
}

// False: it is no longer pending.
bool PendingAccepts::advance(Place place) {
  PendingConnection& connection = place->connection;
  try {
    connection.advance();
    if (place->is_stranger && connection.handshake().is_called()) count_call(*place);
    if (!connection.handshake().is_proved()) return true;
    admit_(connection);
    forget(place);
  } catch (const ProtocolError& error) {
    drop(place, error.what());
  }
  return false;
}

// A first hello is made for one connection, so only one is none of a stranger's. A copy may be read first: then the
// honest connection remains among the strangers, until it has proved its identity, which no copy can.
void PendingAccepts::count_call(Accepted& one) {
  if (calls_.insert(one.connection.handshake().call()).second) forget_stranger(one);
}

// At most kMostAtOnce per call, so that handshakes in progress have their turn too.
void PendingAccepts::accept_all(int listener) {
  for (std::size_t accepted = 0; accepted < kMostAtOnce; ++accepted) {
    Fd fd = accept_at(listener);
    if (!fd.is_open() && !make_room(errno)) return;
    if (fd.is_open()) accept(std::move(fd));
  }
}

void PendingAccepts::accept(Fd fd) {
  const std::string foreign = foreign_user(fd.get());
  const std::uint64_t source = source_of(fd.get());
  pending_.push_back({{std::move(fd), Handshake::accepting(self_), hello_timeout_}, source});
  ++strangers_;
  ++strangers_from_[source];
  const Place place = std::prev(pending_.end());
  if (!foreign.empty()) return drop(place, foreign);
  advance(place);
  while (strangers_ > most_strangers_) drop_stranger("too many handshakes at one time");
}

void PendingAccepts::drop_late(TimePoint now) {
  while (!pending_.empty() && now >= pending_.front().connection.deadline()) {
    if (!advance(pending_.begin())) continue;  // its bytes were there, and this process was late
    drop(pending_.begin(), "no hello within the hello timeout (HORO_HELLO_TIMEOUT_MS)");
  }
}

TimePoint PendingAccepts::next_deadline(TimePoint latest) const {
  return pending_.empty() ? latest : std::min(latest, pending_.front().connection.deadline());
}

// Drops one stranger, unless its hello has come meanwhile. False: there is none.
bool PendingAccepts::drop_stranger(const char* why) {
  if (strangers_ == 0) return false;
  const auto fewer = [](const auto& a, const auto& b) { return a.second < b.second; };
  const std::uint64_t source = std::ranges::max_element(strangers_from_, fewer)->first;
  const auto is_it = [source](const Accepted& one) { return one.is_stranger && one.source == source; };
  const Place oldest = std::ranges::find_if(pending_, is_it);
  if (advance(oldest) && oldest->is_stranger) drop(oldest, why);
  return true;
}

void PendingAccepts::drop(Place place, const std::string& why) {
  if (dropped_++ == 0) first_dropped_ = say("from ", peer_text(place->connection.fd()), ": ", why);
  forget(place);
}

void PendingAccepts::forget(Place place) {
  if (place->is_stranger) forget_stranger(*place);
  pending_.erase(place);
}

void PendingAccepts::forget_stranger(Accepted& one) {
  one.is_stranger = false;
  --strangers_;
  const auto from = strangers_from_.find(one.source);
  if (--from->second == 0) strangers_from_.erase(from);
}

// True if accepting failed for want of a descriptor, and one is free now.
bool PendingAccepts::make_room(int error) {
  if (error != EMFILE && error != ENFILE) return false;
  if (pending_.empty()) {
    throw std::system_error(error, std::generic_category(),
                            say("rank ", self_.rank,
                                " cannot accept connections; raise the limit of open files before the job starts "
                                "(ulimit -n)"));
  }
  constexpr const char* kWhy = "no descriptor was left for it (ulimit -n)";
  if (!drop_stranger(kWhy)) drop(pending_.begin(), kWhy);
  return true;
}

}  // namespace horo
