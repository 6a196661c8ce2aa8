// The progress role: moves what can move with every peer, never blocking on one; spins briefly where that pays, then
// sleeps in poll in slices, between which it looks whether a peer died. Sending is never waited for while nothing is
// read, so two ranks that send to each other cannot stop.

#include <algorithm>
#include <cstring>
#include <utility>

#include "horo/base/check.h"
#include "horo/base/say.h"
#include "ring/os/process.h"
#include "ring/transport/stream_transport.h"

namespace horo {
namespace {

constexpr std::chrono::microseconds kShortestNap{50};

}  // namespace

// Returns when something has ended, the transport failed or `until` has come. What goes wrong ends the transport.
void StreamTransport::progress(TimePoint until) noexcept {
  try {
    move_bytes(until);
  } catch (const PeerLost& lost) {
    MutexLock lock(mutex_);
    fail(lost);
  } catch (const std::bad_alloc&) {
    MutexLock lock(mutex_);
    fail(no_memory_);
  } catch (const std::exception& error) {
    MutexLock lock(mutex_);
    fail(PeerLost(self_.rank, say("rank ", self_.rank, ": ", error.what())));
  }
}

// Who saw a death first may have closed its connections since: that is the effect.
void StreamTransport::move_bytes(TimePoint until) {
  try {
    move_or_sleep(until);
  } catch (const PeerLost& lost) {
    if (lost.evidence() != Evidence::kTold) throw_if_died();
    throw;
  }
}

// Looking is cheap and being woken is dear: several looks in a row, then the core is offered to others in between, and
// where nothing comes for a while, or somebody else keeps the core, the rank sleeps.
void StreamTransport::move_or_sleep(TimePoint until) {
  const TimePoint now = Clock::now(), end = std::min<TimePoint>(until, now + patience_.awake);
  for (int look = 0; look < patience_.spins && Clock::now() < end; ++look) {
    if (sweep()) return;
    relax_core();
  }
  if (sweep()) return;
  if (now < end && lookout_.look([this] { return sweep() || sweep() || sweep() || sweep(); })) return;
  sleep(until);
}

// One round over the peers that we have business with. True if anything moved, or the transport failed.
bool StreamTransport::sweep() {
  if (!find_work()) return true;
  bool moved = false;
  for (const auto& connection : connections_) {
    if ((connection->is_sending() || connection->is_settling()) && send_to(*connection)) moved = true;
    const Stripes* stripes = stripes_with(connection->peer());
    const auto& expected = expected_[static_cast<std::size_t>(connection->peer())];
    // Who has not taken up what was sent to him may have said why.
    const bool busy = expected || connection->is_in_frame() || connection->is_settling() ||
                      (stripes != nullptr && stripes->is_receiving());
    if (busy && receive_from(*connection, stripes == nullptr ? expected : std::nullopt)) moved = true;
  }
  if (moved) nap_ = kShortestNap;
  return moved;
}

// What to send, and from whom something is to come. False: the transport failed.
bool StreamTransport::find_work() {
  bool has_cancels = false;
  {
    MutexLock lock(mutex_);
    if (failed_) return false;
    has_cancels = table_.has_cancels();
    for (const auto& connection : connections_) {
      if (has_cancels) continue;
      expected_[static_cast<std::size_t>(connection->peer())] = table_.expected(connection->peer());
      if (connection->is_sending() || !connection->can_send()) continue;
      if (auto next = next_for(*connection)) connection->begin_send(std::move(*next));
    }
  }
  if (!has_cancels) return true;
  apply_cancels();
  return find_work();
}

// The rest of a long message is for any connection to its peer, what comes next for the first.
std::optional<Outgoing> StreamTransport::next_for(const DataConnection& connection) {
  Stripes* stripes = stripes_with(connection.peer());
  if (stripes != nullptr && stripes->has_more()) return stripes->next();
  if (!connection.is_first()) return std::nullopt;
  auto next = table_.next_send(connection.peer());
  if (next && stripes != nullptr && Stripes::cuts(*next)) return stripes->begin(*next);
  return next;
}

void StreamTransport::on_sent(const DataConnection& connection, const Outgoing& message) {
  if (!message.stripe) return table_.sent(message, connection.frame_bytes());
  const auto whole = stripes_with(connection.peer())->sent(message, connection.frame_bytes());
  if (whole) table_.sent(whole->message, whole->frame_bytes);
}

// Small messages one after the other, of a large one a quantum: then it is time to read.
bool StreamTransport::send_to(DataConnection& connection) {
  bool moved = false;
  for (std::size_t left = DataConnection::kQuantumBytes; left > 0;) {
    const std::size_t written = connection.write();
    const auto sent = connection.take_sent();
    if (written == 0 && !sent) break;
    moved = true;
    left -= std::min(left, written);
    if (!sent && connection.is_sending()) continue;
    MutexLock lock(mutex_);
    if (sent) on_sent(connection, *sent);
    if (connection.is_sending() || !connection.can_send()) continue;
    if (auto next = next_for(connection)) connection.begin_send(std::move(*next));
  }
  return moved;
}

bool StreamTransport::receive_from(DataConnection& connection, const std::optional<OpTable::Expected>& expected) {
  const bool stalled = connection.is_stalled();
  bool moved = connection.read(expected);
  while (true) {
    switch (connection.next()) {
      case DataConnection::Arrival::kNothing:
        if (has_closed(connection.peer())) {
          MutexLock lock(mutex_);
          left_[static_cast<std::size_t>(connection.peer())] = true;
        }
        return moved || (stalled && !connection.is_stalled());
      case DataConnection::Arrival::kHeader:
        if (!place(connection)) return moved;
        break;
      case DataConnection::Arrival::kMessage:
        end_frame(connection);
        moved = true;
        break;
    }
  }
}

// All connections to it, after a goodbye: nothing that it did before is still to come.
bool StreamTransport::has_closed(int peer) const {
  return std::all_of(connections_.begin(), connections_.end(),
                     [peer](const auto& one) { return one->peer() != peer || (one->is_closed() && one->has_left()); });
}

// False: there is no room, the frame waits.
bool StreamTransport::place(DataConnection& connection) {
  const Frame& frame = connection.incoming().frame;
  if (is_piece(frame)) return place_piece(connection);
  const Stripes* stripes = stripes_with(connection.peer());
  if (frame.kind != FrameKind::kData || frame.segment == kCancelSegment) {
    connection.place_own();
    return true;
  }
  const Tag tag{frame.channel, frame.plan, frame.segment, frame.key_hash};
  if (stripes != nullptr && stripes->is_early(tag)) return false;
  MutexLock lock(mutex_);
  const auto match = table_.match(connection.peer(), tag, frame.length);
  if (match.place == OpTable::Place::kRefused) return false;
  connection.place(match);
  return true;
}

// False: the message has no room, or one of its tag comes first, or this is not its first piece, and that one is still
// to come.
bool StreamTransport::place_piece(DataConnection& connection) {
  const Frame& frame = connection.incoming().frame;
  Stripes* stripes = stripes_with(connection.peer());
  try {
    if (stripes == nullptr || (frame.kind == FrameKind::kStriped && !connection.is_first())) {
      throw ProtocolError("a piece of a message where none was expected");
    }
    stripes->check(frame);
    if (frame.kind == FrameKind::kStriped) {
      const Tag tag{frame.channel, frame.plan, frame.segment, frame.key_hash};
      if (stripes->is_early(tag)) return false;
      MutexLock lock(mutex_);
      const auto match = table_.match(connection.peer(), tag, frame.offset);
      if (match.place == OpTable::Place::kRefused) return false;
      stripes->open(frame, match);
    }
    const auto match = stripes->place(frame);
    if (match) connection.place(*match);
    return match.has_value();
  } catch (const ProtocolError& error) {
    throw PeerLost(connection.peer(), say(connection.name(), " was ended: ", error.what()));
  }
}

void StreamTransport::end_frame(DataConnection& connection) {
  Incoming& in = connection.incoming();
  const int peer = connection.peer();
  connection.end_message();
  if (is_piece(in.frame)) {
    auto whole = stripes_with(peer)->received(in.frame, connection.incoming_frame_bytes());
    return whole ? end_message(peer, std::move(*whole)) : void();
  }
  if (in.frame.kind != FrameKind::kData || in.frame.segment == kCancelSegment) return on_notice(connection);
  const Tag tag{in.frame.channel, in.frame.plan, in.frame.segment, in.frame.key_hash};
  end_message(peer, {tag, in.match, std::move(in.own), connection.incoming_frame_bytes()});
}

void StreamTransport::end_message(int peer, Stripes::Received message) {
  if (message.match.place == OpTable::Place::kDropped) return apply_cancels();
  if (message.match.place == OpTable::Place::kEarly) {
    EarlyMessage early{message.tag, std::move(message.own), message.frame_bytes};
    {
      MutexLock lock(mutex_);
      message.match = table_.keep(peer, early);
    }
    if (message.match.place != OpTable::Place::kPosted) return apply_cancels();
    if (!early.bytes.empty()) std::memcpy(message.match.memory.data(), early.bytes.data(), early.bytes.size());
  }
  MutexLock lock(mutex_);
  table_.received(message.match.op, message.frame_bytes);
}

void StreamTransport::on_notice(DataConnection& connection) {
  const Incoming& in = connection.incoming();
  const auto text = [&] { return std::string(reinterpret_cast<const char*>(in.own.data()), in.own.size()); };
  if (in.frame.kind == FrameKind::kAbort) {
    AbortNotice notice;
    try {
      notice = self_.notice_in(in.own);
    } catch (const ProtocolError& error) {
      throw PeerLost(connection.peer(), say(connection.name(), " was ended: ", error.what()));
    }
    throw PeerLost(notice.origin, notice.reason);
  }
  if (in.frame.kind == FrameKind::kGoodbye) return connection.set_left();
  if (in.frame.kind == FrameKind::kBeat) return;
  if (in.frame.kind != FrameKind::kData) {
    throw PeerLost(connection.peer(), say(connection.name(), " was ended: a frame of a kind that has no place here"));
  }
  const PlanCancel cancel{in.frame.channel, in.frame.plan,
                          in.own.empty() ? say("cancelled by rank ", connection.peer()) : text()};
  release(cancel);
}

// First the connections let go of the memory, then the waiting thread learns of it.
void StreamTransport::release(const PlanCancel& cancel) {
  for (auto& expected : expected_) expected.reset();
  for (const auto& connection : connections_) connection->release(cancel.channel, cancel.plan);
  for (const auto& stripes : stripes_) {
    if (stripes) stripes->release(cancel.channel, cancel.plan);
  }
  MutexLock lock(mutex_);
  table_.cancel(cancel);
  changed_.notify_all();
}

void StreamTransport::apply_cancels() {
  std::vector<PlanCancel> cancels;
  {
    MutexLock lock(mutex_);
    cancels = table_.take_cancels();
  }
  for (const PlanCancel& cancel : cancels) release(cancel);
}

// False if there is something to do at once: nothing that is posted after this can be missed, because it wakes us.
bool StreamTransport::prepare_sleep() {
  wakeup_.clear();
  MutexLock lock(mutex_);
  if (failed_) return false;
  for (const auto& connection : connections_) {
    if (connection->is_sending() || !connection->can_send()) continue;
    if (auto next = next_for(*connection)) {
      connection->begin_send(std::move(*next));
      return false;
    }
  }
  sleeping_ = true;
  changed_.notify_all();
  return true;
}

void StreamTransport::sleep(TimePoint until) {
  if (!prepare_sleep()) return;
  polls_.assign(1, {wakeup_.fd(), POLLIN, 0});
  polled_.assign(1, nullptr);
  bool is_ready = false;
  for (const auto& connection : connections_) {
    if (connection->is_closed()) continue;
    polls_.push_back(connection->before_sleep());
    polled_.push_back(connection.get());
    is_ready = is_ready || polls_.back().revents != 0;
  }
  const auto left = std::chrono::duration_cast<std::chrono::nanoseconds>(until - Clock::now());
  const long longest = is_ready ? 0 : std::chrono::nanoseconds(longest_sleep()).count();
  const timespec timeout{0, std::clamp<long>(left.count(), 0, longest)};
  ::ppoll(polls_.data(), polls_.size(), &timeout, nullptr);
  {
    MutexLock lock(mutex_);
    sleeping_ = false;
  }
  for (std::size_t i = 1; i < polls_.size(); ++i) polls_[i].revents = polled_[i]->after_sleep(polls_[i].revents);
  for (std::size_t i = 1; i < polls_.size(); ++i) on_ready(*polled_[i], polls_[i].revents);
  throw_if_died();
}

// MPI wakes nobody: the longer nothing came, the less often it is looked at.
Duration StreamTransport::longest_sleep() {
  return mpi_ ? std::exchange(nap_, std::min<Duration>(2 * nap_, kWaitSlice)) : kWaitSlice;
}

void StreamTransport::throw_if_died() const {
  const int dead = first_dead();
  if (dead >= 0) throw PeerLost(dead, say("rank ", dead, " is lost: ", say_ended(self_.rank)), Evidence::kDied);
}

void StreamTransport::on_ready(DataConnection& connection, short revents) {
  if ((revents & POLLOUT) || connection.is_settling()) send_to(connection);
  if (connection.is_stalled() && (revents & (POLLERR | POLLHUP))) {
    throw PeerLost(connection.peer(), say(connection.name(), " was lost: it broke off"), Evidence::kBroken);
  }
  if (revents & (POLLIN | POLLERR | POLLHUP)) receive_from(connection);
}

}  // namespace horo
