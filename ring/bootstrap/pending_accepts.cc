#include "ring/bootstrap/pending_accepts.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <system_error>

#include "horo/base/error.h"
#include "horo/base/say.h"

namespace horo {
namespace {

constexpr std::size_t kMostPending = 512;

}  // namespace

std::string foreign_user(int fd) {
  const std::optional<uid_t> user = peer_user(fd);
  if (!user || *user == ::geteuid()) return "";
  return say("the socket's other end belongs to user ", *user, ", expected user ", ::geteuid());
}

void PendingAccepts::add_to(PollSet& polls) {
  for (const auto& pending : pending_) {
    polls.add(pending->fd(), pending->events(), [this, one = pending.get()] { advance(*one); });
  }
}

void PendingAccepts::advance(PendingConnection& pending) {
  try {
    pending.advance();
    if (!pending.is_done()) return;
    admit_(pending);
    forget(pending);
  } catch (const ProtocolError& error) {
    drop(pending, error.what());
  }
}

// At most kMostPending per call, so that handshakes in progress have their turn too.
void PendingAccepts::accept_all(int listener) {
  for (std::size_t accepted = 0; accepted < kMostPending; ++accepted) {
    Fd fd = accept_at(listener);
    if (!fd.is_open() && !make_room(errno)) return;
    if (!fd.is_open()) continue;
    if (pending_.size() == kMostPending) drop_oldest("too many handshakes at one time");
    pending_.push_back(
        std::make_unique<PendingConnection>(std::move(fd), Handshake::accepting(self_), Clock::now() + hello_timeout_));
    PendingConnection& pending = *pending_.back();
    pending.set_connected();
    if (const std::string foreign = foreign_user(pending.fd()); !foreign.empty()) drop(pending, foreign);
  }
}

void PendingAccepts::drop_late(TimePoint now) {
  while (!pending_.empty() && now >= pending_.front()->deadline()) {
    drop_oldest("no hello within the hello timeout (HORO_HELLO_TIMEOUT_MS)");
  }
}

TimePoint PendingAccepts::next_deadline(TimePoint latest) const {
  return pending_.empty() ? latest : std::min(latest, pending_.front()->deadline());
}

void PendingAccepts::drop(const PendingConnection& pending, const std::string& why) {
  if (dropped_++ == 0) first_dropped_ = say("from ", peer_text(pending.fd()), ": ", why);
  forget(pending);
}

void PendingAccepts::forget(const PendingConnection& pending) {
  const auto is_it = [&pending](const auto& one) { return one.get() == &pending; };
  pending_.erase(std::find_if(pending_.begin(), pending_.end(), is_it));
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
  drop_oldest("no descriptor was left for it (ulimit -n)");
  return true;
}

}  // namespace horo
