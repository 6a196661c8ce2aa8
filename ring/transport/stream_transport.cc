// Any number of threads may wait at once, each for the operations of its channel. One of them at a time holds the
// progress role: it moves the bytes of all peers and channels, with the lock released, while the others sleep until
// their operations have ended or the role is free. So progress needs no thread of its own, and a connection is used by
// one thread at a time. While a thread holds the role, no other thread ends operations or gives up their memory.

#include "ring/transport/stream_transport.h"

#include <linux/tcp.h>
#include <netinet/in.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "horo/base/check.h"
#include "horo/base/log.h"
#include "horo/base/patience.h"
#include "horo/base/say.h"
#include "ring/transport/factories.h"
#include "ring/transport/last_frames.h"

namespace horo {
namespace {

constexpr std::chrono::milliseconds kAbortPatience{50};
constexpr std::chrono::milliseconds kGoodbyePatience{1'000};

std::vector<DataConnection*> connections_to_keep_warm(const Config& config, bool has_mpi,
                                                      const DataConnections& connections) {
  std::vector<DataConnection*> found;
  if (config.tcp_keep_warm.count() == 0 || has_mpi) return found;
  for (const auto& connection : connections) {
    if (!connection->is_memory() && cools_down(connection->fd())) found.push_back(connection.get());
  }
  return found;
}

}  // namespace

StreamTransport::StreamTransport(const Config& config, const Identity& self, std::vector<Connection> connections,
                                 std::shared_ptr<ShmArenas> arenas)
    : config_(config),
      self_(self),
      arenas_(std::move(arenas)),
      no_memory_(out_of_memory_error(self.rank)),
      state_(self.rank, self.size, config.max_early_bytes, connections.empty() ? nullptr : connections.front().mpi),
      progress_(config_, self_, std::move(connections), arenas_.get(), state_),
      keep_warm_(connections_to_keep_warm(config, state_.mpi != nullptr, progress_.connections()),
                 config.tcp_keep_warm) {}

StreamTransport::~StreamTransport() {
  leave();
}

void StreamTransport::leave() noexcept {
  {
    MutexLock lock(state_.mutex);
    HORO_CHECK(!state_.is_progressing);
    if (state_.failure || std::exchange(is_leaving_, true)) return;
  }
  try {
    begin_goodbye(progress_.connections());
    flush_last(progress_.connections(), kGoodbyePatience);
  } catch (const std::bad_alloc&) {
    log_warning("no memory to say goodbye on the data connections");
  }
}

Transport::Op StreamTransport::post_send(int peer, const Tag& tag, std::span<const std::byte> out) {
  HORO_CHECK(peer >= 0 && peer < self_.size && peer != self_.rank);
  MutexLock lock(state_.mutex);
  throw_if_failed();
  const Op op = state_.table.add_send(peer, tag, out);
  state_.wake_progress();
  return op;
}

Transport::Op StreamTransport::post_recv(int peer, const Tag& tag, std::span<std::byte> in) {
  HORO_CHECK(peer >= 0 && peer < self_.size && peer != self_.rank);
  std::optional<EarlyMessage> early;
  Op op = 0;
  {
    MutexLock lock(state_.mutex);
    throw_if_failed();
    op = state_.table.add_recv(peer, tag, in, early);
    state_.wake_progress();
  }
  if (!early) return op;
  if (!in.empty()) std::memcpy(in.data(), early->bytes.data(), in.size());
  MutexLock lock(state_.mutex);
  state_.table.received(op, early->frame_bytes);
  return op;
}

void StreamTransport::wait(std::span<const Op> ops, TimePoint deadline) {
  try {
    for (Turn turn = next_turn(ops, deadline); turn != Turn::kDone; turn = next_turn(ops, deadline)) {
      if (turn == Turn::kProgress) progress(TimePoint::max());  // a deadline in the past may not count: has_passed()
    }
  } catch (const Mismatch&) {
    flush_notices();
    throw;
  }
}

StreamTransport::Turn StreamTransport::next_turn(std::span<const Op> ops, TimePoint deadline) {
  MutexLock lock(state_.mutex);
  // Operations that are complete stay so, although the transport may have failed since.
  if (!ops.empty() && state_.table.finish(ops)) return Turn::kDone;
  throw_if_failed();
  if (ops.empty()) return Turn::kDone;
  check_peers(ops, deadline);
  throw_if_failed();
  if (state_.is_progressing) {
    state_.changed.wait_until(state_.mutex, Clock::now() + kWaitSlice);
    return Turn::kAgain;
  }
  was_used_ = true;
  return take_role();
}

StreamTransport::Turn StreamTransport::take_role() {
  state_.is_progressing = true;
  return Turn::kProgress;
}

// Moves bytes or sleeps for a slice of time at most, then returns the role.
void StreamTransport::progress(TimePoint until) {
  progress_.run(std::min<TimePoint>(until, Clock::now() + kWaitSlice));
  return_role();
}

void StreamTransport::return_role() {
  MutexLock lock(state_.mutex);
  state_.is_progressing = false;
  state_.changed.notify_all();
}

// Fails the transport where operations wait for a peer that has left, or the deadline has passed.
void StreamTransport::check_peers(std::span<const Op> ops, TimePoint deadline) {
  const bool all_here = std::find(state_.left.begin(), state_.left.end(), char{true}) == state_.left.end();
  for (const int peer : all_here ? std::vector<int>() : state_.table.waiting_for(ops)) {
    if (!state_.has_left(peer)) continue;
    return state_.fail(
        PeerLost(peer, say("rank ", self_.rank, ": rank ", peer, " left while messages were waited for")));
  }
  if (!has_passed(deadline)) return;
  state_.fail(PeerLost(state_.table.waiting_for(ops).front(), late_text(ops), Evidence::kLate));
}

std::string StreamTransport::late_text(std::span<const Op> ops) const {
  const Tag tag = state_.table.first_open(ops).value();
  return say("rank ", self_.rank, ": still waiting for ", say_ranks(state_.table.waiting_for(ops)), " on channel ",
             tag.channel, ", plan ", tag.plan, " at the deadline (HORO_DEADLINE_MS=", config_.deadline.count(), ")");
}

// A caller that receives the error may free its memory, so first the connections give it up. No thread holds the
// progress role then, and no thread can take it while this one holds the lock.
void StreamTransport::throw_if_failed() {
  if (!state_.failure) return;
  while (state_.is_progressing) state_.changed.wait(state_.mutex);
  if (!has_released_) {
    progress_.release_all();  // may throw: then the next caller tries again
    has_released_ = true;
  }
  throw PeerLost(*state_.failure);
}

// After a Mismatch: the other ranks of the cancelled plan get their notices even if this rank never waits again.
void StreamTransport::flush_notices() {
  const TimePoint until = Clock::now() + kAbortPatience;
  while (Clock::now() < until) {
    const Turn turn = next_turn_for_notices();
    if (turn == Turn::kDone) return;
    if (turn == Turn::kProgress) progress(until);
  }
}

StreamTransport::Turn StreamTransport::next_turn_for_notices() {
  MutexLock lock(state_.mutex);
  if (state_.failure || state_.table.open_notices() == 0) return Turn::kDone;
  if (!state_.is_progressing) return take_role();
  state_.changed.wait_until(state_.mutex, Clock::now() + kWaitSlice);
  return Turn::kAgain;
}

// If no thread moves bytes, this one reads the connections, where a goodbye or an abort notice may lie.
bool StreamTransport::has_left(int peer) {
  {
    MutexLock lock(state_.mutex);
    throw_if_failed();
    if (state_.is_progressing) return state_.has_left(peer);
    take_role();
  }
  progress(Clock::now());
  MutexLock lock(state_.mutex);
  throw_if_failed();
  return state_.has_left(peer);
}

// Over MPI a peer may wait for a message that was begun here and needs another call of MPI.
TimePoint StreamTransport::tick() noexcept {
  if (!state_.mpi && !keep_warm_.is_needed()) return TimePoint::max();
  TimePoint again;
  {
    MutexLock lock(state_.mutex);
    if (state_.failure || is_leaving_) return TimePoint::max();
    const bool is_busy = std::exchange(was_used_, false) || state_.is_progressing;
    again = keep_warm_.next_beat(Clock::now(), is_busy);
    const bool has_beats = !is_busy && again != TimePoint::max();
    if (state_.is_progressing || (!state_.mpi && !has_beats)) return again;
    take_role();
  }
  if (state_.mpi) state_.mpi->progress();
  keep_warm_.send_beats();
  return_role();
  return again;
}

void StreamTransport::stop_checksums() {
  MutexLock lock(state_.mutex);
  HORO_CHECK(!state_.is_progressing);
  for (const auto& connection : progress_.connections()) connection->out().stop_checksums();
}

void StreamTransport::abort(int origin, const std::string& reason) noexcept {
  if (!begin_abort(origin, reason)) return;
  try {
    horo::begin_abort(progress_.connections(), {origin, reason}, first_dead());
    flush_last(progress_.connections(), kAbortPatience);
  } catch (const std::bad_alloc&) {
    log_warning("no memory to send the other ranks the reason; they will find the connection closed");
  }
  end_abort();
}

// Ends the transport and takes the progress role. False: another thread has sent the notices; until then it may read
// from the memory of this caller's operations.
bool StreamTransport::begin_abort(int origin, const std::string& reason) noexcept {
  MutexLock lock(state_.mutex);
  try {
    state_.fail(PeerLost(origin, reason));
  } catch (const std::bad_alloc&) {
    state_.fail(no_memory_);
  }
  if (std::exchange(is_aborted_, true)) {
    while (!has_notified_) state_.changed.wait(state_.mutex);
    return false;
  }
  while (state_.is_progressing) state_.changed.wait(state_.mutex);
  take_role();
  return true;
}

void StreamTransport::end_abort() noexcept {
  MutexLock lock(state_.mutex);
  if (!std::exchange(has_released_, true)) progress_.drop_all();
  state_.is_progressing = false;
  has_notified_ = true;
  state_.changed.notify_all();
}

Traffic StreamTransport::traffic(std::uint32_t channel) const {
  MutexLock lock(state_.mutex);
  return state_.table.traffic(channel);
}

std::uint64_t StreamTransport::kernel_bytes_sent_to(int peer) const {
  std::uint64_t total = 0;
  for (const auto& connection : progress_.connections()) {
    tcp_info info{};
    socklen_t length = sizeof(info);
    if (connection->peer() != peer) continue;
    if (::getsockopt(connection->fd(), IPPROTO_TCP, TCP_INFO, &info, &length) != 0) continue;
    total += info.tcpi_bytes_sent - info.tcpi_bytes_retrans;
  }
  return total;
}

std::unique_ptr<Transport> make_stream_transport(const Config& config, const Identity& self,
                                                 std::vector<Connection> connections,
                                                 std::shared_ptr<ShmArenas> arenas) {
  return std::make_unique<StreamTransport>(config, self, std::move(connections), std::move(arenas));
}

}  // namespace horo
