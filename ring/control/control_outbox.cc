// Only the holder of the writing role removes messages, so the message that it writes stays valid while the lock is
// released. A stream in shared memory does not wake a thread that waits for room here; it is tried again after
// kWaitSlice.
#include "ring/control/control_outbox.h"

#include <algorithm>
#include <iterator>
#include <span>

#include "ring/os/socket.h"

namespace horo {

ControlOutbox::ControlOutbox(std::vector<Stream*> streams) : streams_(std::move(streams)), peers_(streams_.size()) {
  polls_.reserve(streams_.size());
}

void ControlOutbox::put(std::size_t at, Bytes bytes) {
  MutexLock lock(mutex_);
  Peer& peer = peers_[at];
  if (peer.is_broken) return;
  peer.queued_bytes += bytes.size();
  peer.queue.push_back(std::move(bytes));
}

void ControlOutbox::put_prepared(std::size_t at, std::list<Bytes>& messages) noexcept {
  MutexLock lock(mutex_);
  Peer& peer = peers_[at];
  if (peer.is_broken) return;
  for (const Bytes& bytes : messages) peer.queued_bytes += bytes.size();
  peer.queue.splice(peer.queue.end(), messages);
}

// Behind the message that is partly written, if there is one.
void ControlOutbox::put_urgent(std::size_t at, const Bytes& bytes) {
  MutexLock lock(mutex_);
  Peer& peer = peers_[at];
  if (peer.is_broken) return;
  peer.queued_bytes += bytes.size();
  const bool is_first_begun = !peer.queue.empty() && (peer.sent > 0 || is_writing_);
  peer.queue.insert(is_first_begun ? std::next(peer.queue.begin()) : peer.queue.begin(), bytes);
}

bool ControlOutbox::has_unsent() const {
  MutexLock lock(mutex_);
  return std::any_of(peers_.begin(), peers_.end(), [](const Peer& peer) { return !peer.queue.empty(); });
}

bool ControlOutbox::has_unsent(std::size_t at) const {
  MutexLock lock(mutex_);
  return !peers_[at].queue.empty();
}

std::size_t ControlOutbox::queued_bytes(std::size_t at) const {
  MutexLock lock(mutex_);
  return peers_[at].queued_bytes;
}

bool ControlOutbox::write_some(std::size_t at) {
  std::span<const std::byte> rest;
  {
    MutexLock lock(mutex_);
    const Peer& peer = peers_[at];
    if (peer.queue.empty()) return false;
    rest = std::span<const std::byte>(peer.queue.front()).subspan(peer.sent);
  }
  iovec part = as_iovec(rest);
  const Moved moved = streams_[at]->send({&part, 1});
  MutexLock lock(mutex_);
  Peer& peer = peers_[at];
  peer.sent += moved.bytes;
  if (peer.sent == peer.queue.front().size()) {
    peer.queued_bytes -= peer.sent;
    peer.queue.pop_front();
    peer.sent = 0;
  }
  if (moved.ended) {
    peer.is_broken = true;
    peer.queue.clear();
    peer.queued_bytes = peer.sent = 0;
  }
  return moved.bytes > 0;
}

void ControlOutbox::flush(TimePoint until) noexcept {
  {
    MutexLock lock(mutex_);
    while (is_writing_ && Clock::now() < until) changed_.wait_until(mutex_, until);
    if (is_writing_) return;  // the holder of the role, or the next flush(), writes these messages too
    is_writing_ = true;
  }
  while (true) {
    for (std::size_t at = 0; at < streams_.size(); ++at) {
      while (write_some(at)) {
      }
    }
    if (Clock::now() >= until || !has_unsent()) break;
    polls_.clear();
    for (std::size_t at = 0; at < streams_.size(); ++at) {
      if (has_unsent(at) && !streams_[at]->is_memory()) polls_.push_back({streams_[at]->socket(), POLLOUT, 0});
    }
    ::poll(polls_.data(), polls_.size(), static_cast<int>(kWaitSlice.count()));
  }
  MutexLock lock(mutex_);
  is_writing_ = false;
  changed_.notify_all();
}

}  // namespace horo
