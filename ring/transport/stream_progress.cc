// A sweep sends and receives as many bytes as possible with every peer, and never blocks on one of them. No wait for
// room to send stops the reads, so two ranks that send to each other cannot deadlock.

#include "ring/transport/stream_progress.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "horo/base/check.h"
#include "horo/base/error.h"
#include "horo/base/say.h"
#include "ring/os/process.h"

namespace horo {
namespace {

constexpr std::chrono::microseconds kShortestNap{50};

// Whether a peer can be polled without a system call.
bool polls_without_kernel(const std::vector<Connection>& connections) {
  return std::any_of(connections.begin(), connections.end(), [](const Connection& c) { return c.memory || c.mpi; });
}

Tag tag_of(const Frame& frame) {
  return {frame.channel, frame.plan, frame.segment, frame.key_hash};
}

}  // namespace

StreamProgress::StreamProgress(const Config& config, const Identity& self, std::vector<Connection> connections,
                               const ShmArenas* arenas, StreamState& state)
    : self_(self),
      arenas_(arenas),
      patience_(patience_for(config.local_size, polls_without_kernel(connections))),
      no_memory_(out_of_memory_error(self.rank)),
      brief_wait_(patience_.turn),
      state_(state),
      stripes_(static_cast<std::size_t>(self.size)),
      expected_(static_cast<std::size_t>(self.size)) {
  std::sort(connections.begin(), connections.end(), [](const Connection& a, const Connection& b) {
    return std::pair(a.peer, a.number) < std::pair(b.peer, b.number);
  });
  for (Connection& one : connections) {
    if (one.number == 1) stripes_[static_cast<std::size_t>(one.peer)] = std::make_unique<Stripes>(one.width);
    connections_.push_back(std::make_unique<DataConnection>(std::move(one), self, config.shm_chunk_bytes));
  }
}

void StreamProgress::run(TimePoint until) noexcept {
  try {
    try {
      move_or_sleep(until);
    } catch (const PeerLost& lost) {
      // A rank that saw a death first may have closed its connections since. The death is the cause.
      if (lost.evidence() != Evidence::kTold) throw_if_died();
      throw;
    }
  } catch (const PeerLost& lost) {
    MutexLock lock(state_.mutex);
    state_.fail(lost);
  } catch (const std::bad_alloc&) {
    MutexLock lock(state_.mutex);
    state_.fail(no_memory_);
  } catch (const std::exception& error) {
    MutexLock lock(state_.mutex);
    state_.fail(PeerLost(self_.rank, say("rank ", self_.rank, ": ", error.what())));
  }
}

// Polling is cheap and a wake-up is expensive: several polls in a row, then polls between which the core is offered to
// other threads. Where nothing arrives for a while, or another thread keeps the core, the rank sleeps.
void StreamProgress::move_or_sleep(TimePoint until) {
  const TimePoint now = Clock::now(), end = std::min<TimePoint>(until, now + patience_.awake);
  for (int spin = 0; spin < patience_.spins && Clock::now() < end; ++spin) {
    if (sweep()) return;
    relax_core();
  }
  if (sweep()) return;
  if (now < end && brief_wait_.poll([this] { return sweep() || sweep() || sweep() || sweep(); })) return;
  sleep(until);
}

// One sweep over the peers with pending sends or receives. True if anything moved, or the transport has failed.
bool StreamProgress::sweep() {
  if (!begin_sends()) return true;
  bool moved = false;
  for (const auto& connection : connections_) {
    const FrameWriter& out = connection->out();
    if ((out.is_sending() || out.is_settling()) && send_to(*connection)) moved = true;
    const Stripes* stripes = stripes_with(connection->peer());
    const auto& expected = expected_[static_cast<std::size_t>(connection->peer())];
    // A peer that does not read the bytes sent to it may have sent an abort notice with the reason.
    const bool may_receive = expected || connection->in().is_within_frame() || out.is_settling() ||
                             (stripes != nullptr && stripes->is_receiving());
    if (may_receive && receive_from(*connection, stripes == nullptr ? expected : std::nullopt)) moved = true;
  }
  if (moved) nap_ = kShortestNap;
  return moved;
}

// Begins a send on every free connection and updates expected_. False: the transport has failed.
bool StreamProgress::begin_sends() {
  bool has_cancels = false;
  {
    MutexLock lock(state_.mutex);
    if (state_.failure) return false;
    has_cancels = state_.table.has_cancels();
    for (const auto& connection : connections_) {
      if (has_cancels) continue;
      expected_[static_cast<std::size_t>(connection->peer())] = state_.table.expected(connection->peer());
      begin_next(*connection);
    }
  }
  if (!has_cancels) return true;
  apply_cancels();
  return begin_sends();
}

// True if the connection was free and there was a message, or a stripe, to send.
bool StreamProgress::begin_next(DataConnection& connection) {
  if (connection.out().is_sending() || !connection.can_send()) return false;
  const int peer = connection.peer();
  Stripes* stripes = stripes_with(peer);
  OpTable& table = state_.table;
  auto next = stripes == nullptr ? table.next_send(peer) : stripes->next(connection.is_first(), table, peer);
  if (next) connection.out().begin_message(std::move(*next));
  return next.has_value();
}

void StreamProgress::on_sent(const DataConnection& connection, const Outgoing& message) {
  const std::size_t frame_bytes = connection.out().frame_bytes();
  if (!message.stripe) return state_.table.sent(message, frame_bytes);
  const auto whole = stripes_with(connection.peer())->on_sent(message, frame_bytes);
  if (whole) state_.table.sent(whole->message, whole->frame_bytes);
}

// Sends about one quantum: several small messages, or a part of a large one. Then the caller reads.
bool StreamProgress::send_to(DataConnection& connection) {
  bool moved = false;
  for (std::size_t left = FrameWriter::kQuantumBytes; left > 0;) {
    const std::size_t written = connection.write();
    const auto sent = connection.out().take_sent();
    if (written == 0 && !sent) break;
    moved = true;
    left -= std::min(left, written);
    if (!sent && connection.out().is_sending()) continue;
    MutexLock lock(state_.mutex);
    if (sent) on_sent(connection, *sent);
    begin_next(connection);
  }
  return moved;
}

bool StreamProgress::receive_from(DataConnection& connection, const std::optional<OpTable::Expected>& expected) {
  const bool was_stalled = connection.in().is_stalled();
  bool moved = connection.read(expected);
  while (true) {
    switch (connection.next()) {
      case FrameReader::Arrival::kNothing:
        if (connection.has_ended_well()) on_closed(connection.peer());
        return moved || (was_stalled && !connection.in().is_stalled());
      case FrameReader::Arrival::kHeader:
        if (!place(connection)) return moved;
        break;
      case FrameReader::Arrival::kMessage:
        on_frame(connection);
        moved = true;
        break;
    }
  }
}

// The peer has left once all its connections have ended after a goodbye: everything that it sent has been read.
void StreamProgress::on_closed(int peer) {
  const bool has_left = std::all_of(connections_.begin(), connections_.end(),
                                    [peer](const auto& one) { return one->peer() != peer || one->has_ended_well(); });
  if (!has_left) return;
  MutexLock lock(state_.mutex);
  state_.left[static_cast<std::size_t>(peer)] = true;
}

// False: the frame has to wait, because there is no room for its message or an earlier one comes first.
bool StreamProgress::place(DataConnection& connection) {
  const Frame& frame = connection.in().incoming().frame;
  const int peer = connection.peer();
  Stripes* stripes = stripes_with(peer);
  const auto match = [&](const Tag& tag, std::uint64_t length) {
    MutexLock lock(state_.mutex);
    return state_.table.match(peer, tag, length);
  };
  if (is_notice(frame)) {
    connection.in().place_own();
    return true;
  }
  if (is_stripe(frame)) {
    if (stripes == nullptr) connection.throw_ended("a stripe of a message on the only connection");
    try {
      const auto found = stripes->place(frame, connection.is_first(), match);
      if (found) connection.in().place(*found);
      return found.has_value();
    } catch (const ProtocolError& error) {
      connection.throw_ended(error.what());
    }
  }
  if (stripes != nullptr && stripes->is_early(tag_of(frame))) return false;
  const OpTable::Match found = match(tag_of(frame), frame.length);
  if (found.place == OpTable::Place::kRefused) return false;
  connection.in().place(found);
  return true;
}

void StreamProgress::on_frame(DataConnection& connection) {
  FrameReader& reader = connection.in();
  Incoming& in = reader.incoming();
  const int peer = connection.peer();
  reader.end_message();
  if (is_notice(in.frame)) return on_notice(connection);
  if (!is_stripe(in.frame)) {
    return on_message(peer, {tag_of(in.frame), in.match, std::move(in.own), reader.frame_bytes()});
  }
  auto whole = stripes_with(peer)->on_received(in.frame, reader.frame_bytes());
  if (whole) on_message(peer, std::move(*whole));
}

void StreamProgress::on_message(int peer, ReceivedMessage message) {
  if (message.match.place == OpTable::Place::kDropped) return apply_cancels();
  if (message.match.place == OpTable::Place::kEarly) {
    EarlyMessage early{message.tag, std::move(message.own), message.frame_bytes};
    {
      MutexLock lock(state_.mutex);
      message.match = state_.table.keep(peer, early);
    }
    if (message.match.place != OpTable::Place::kPosted) return apply_cancels();
    if (!early.bytes.empty()) std::memcpy(message.match.memory.data(), early.bytes.data(), early.bytes.size());
  }
  MutexLock lock(state_.mutex);
  state_.table.received(message.match.op, message.frame_bytes);
}

void StreamProgress::on_notice(DataConnection& connection) {
  const Incoming& in = connection.in().incoming();
  switch (in.frame.kind) {
    case FrameKind::kBeat:
      return;
    case FrameKind::kGoodbye:
      return connection.set_left();
    case FrameKind::kAbort: {
      AbortNotice notice;
      try {
        notice = self_.notice_in(in.own);
      } catch (const ProtocolError& error) {
        connection.throw_ended(error.what());
      }
      throw PeerLost(notice.origin, notice.reason);
    }
    case FrameKind::kData: {  // the cancellation of a plan
      const std::string why(reinterpret_cast<const char*>(in.own.data()), in.own.size());
      return release(
          {in.frame.channel, in.frame.plan, why.empty() ? say("cancelled by rank ", connection.peer()) : why});
    }
    default:
      connection.throw_ended("a frame of a kind that data connections do not carry");
  }
}

// First the connections give up the memory of the plan's operations, then the waiting threads return.
void StreamProgress::release(const PlanCancel& cancel) {
  for (auto& expected : expected_) expected.reset();
  for (const auto& connection : connections_) connection->release(cancel.channel, cancel.plan);
  for (const auto& stripes : stripes_) {
    if (stripes) stripes->release(cancel.channel, cancel.plan);
  }
  MutexLock lock(state_.mutex);
  state_.table.cancel(cancel);
  state_.changed.notify_all();
}

void StreamProgress::apply_cancels() {
  std::vector<PlanCancel> cancels;
  {
    MutexLock lock(state_.mutex);
    cancels = state_.table.take_cancels();
  }
  for (const PlanCancel& cancel : cancels) release(cancel);
}

// False if some bytes can be moved at once. An operation that is posted after this wakes the sleeping thread.
bool StreamProgress::prepare_sleep() {
  state_.wakeup.clear();
  MutexLock lock(state_.mutex);
  if (state_.failure) return false;
  for (const auto& connection : connections_) {
    if (begin_next(*connection)) return false;
  }
  state_.is_sleeping = true;
  state_.changed.notify_all();
  return true;
}

void StreamProgress::sleep(TimePoint until) {
  if (!prepare_sleep()) return;
  polls_.assign(1, {state_.wakeup.fd(), POLLIN, 0});
  polled_.assign(1, nullptr);
  bool is_ready = false;
  for (const auto& connection : connections_) {
    if (connection->in().is_closed()) continue;
    polls_.push_back(connection->before_sleep());
    polled_.push_back(connection.get());
    is_ready = is_ready || polls_.back().revents != 0;
  }
  const auto left = std::chrono::duration_cast<std::chrono::nanoseconds>(until - Clock::now());
  const long longest = is_ready ? 0 : std::chrono::nanoseconds(longest_sleep()).count();
  const timespec timeout{0, std::clamp<long>(left.count(), 0, longest)};
  ::ppoll(polls_.data(), polls_.size(), &timeout, nullptr);
  {
    MutexLock lock(state_.mutex);
    state_.is_sleeping = false;
  }
  for (std::size_t i = 1; i < polls_.size(); ++i) polls_[i].revents = polled_[i]->after_sleep(polls_[i].revents);
  for (std::size_t i = 1; i < polls_.size(); ++i) after_sleep(*polled_[i], polls_[i].revents);
  throw_if_died();
}

// MPI cannot wake a sleeping thread, so it is polled, less often the longer no message arrives.
Duration StreamProgress::longest_sleep() {
  return state_.mpi ? std::exchange(nap_, std::min<Duration>(2 * nap_, kWaitSlice)) : kWaitSlice;
}

void StreamProgress::after_sleep(DataConnection& connection, short revents) {
  if ((revents & POLLOUT) || connection.out().is_settling()) send_to(connection);
  if (connection.in().is_stalled() && (revents & (POLLERR | POLLHUP))) {
    throw PeerLost(connection.peer(), say(connection.name(), " was lost: it broke off"), Evidence::kBroken);
  }
  if (revents & (POLLIN | POLLERR | POLLHUP)) receive_from(connection);
}

void StreamProgress::throw_if_died() const {
  const int dead = arenas_ != nullptr ? arenas_->first_dead() : -1;
  if (dead >= 0) throw PeerLost(dead, say("rank ", dead, " is lost: ", say_ended(self_.rank)), Evidence::kDied);
}

void StreamProgress::release_all() {
  for (const auto& connection : connections_) connection->release_all();
  for (const auto& stripes : stripes_) {
    if (stripes) stripes->drop_all();
  }
}

void StreamProgress::drop_all() noexcept {
  for (const auto& connection : connections_) connection->drop_all();
  for (const auto& stripes : stripes_) {
    if (stripes) stripes->drop_all();
  }
}

}  // namespace horo
