// Any number of threads may wait at once, each for the operations of its channel. One of them at a time holds the
// progress role: it moves the bytes of all peers and all channels, with the lock released, while the others sleep until
// their operations have ended or the role is free. So progress needs no thread of its own, and a connection is only
// ever touched by one thread. No operation is given up (and no memory let go) while somebody else holds the role.

#include "ring/transport/stream_transport.h"

#include <linux/tcp.h>
#include <netinet/in.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "horo/base/check.h"
#include "horo/base/log.h"
#include "horo/base/say.h"

namespace horo {
namespace {

constexpr std::chrono::milliseconds kLastWordsPatience{50};
constexpr std::chrono::milliseconds kWarmingEvery{100};       // half of the shortest time that Linux takes for a pause
constexpr std::chrono::milliseconds kGoodbyePatience{1'000};  // for a peer whose buffers are full of our last message

// To a peer who can be looked at without a system call.
bool any_near(const std::vector<Connection>& connections) {
  return std::any_of(connections.begin(), connections.end(), [](const Connection& c) { return c.memory || c.mpi; });
}

}  // namespace

StreamTransport::StreamTransport(const Config& config, const Identity& self, std::vector<Connection> connections,
                                 std::shared_ptr<ShmArenas> arenas)
    : config_(config),
      self_(self),
      patience_(patience_for(config.local_size, any_near(connections))),
      no_memory_(self.rank, say("rank ", self.rank, ": out of memory (std::bad_alloc)")),
      arenas_(std::move(arenas)),
      mpi_(connections.empty() ? nullptr : connections.front().mpi),
      lookout_(patience_.turn),
      stripes_(static_cast<std::size_t>(self.size)),
      expected_(static_cast<std::size_t>(self.size)),
      left_(static_cast<std::size_t>(self.size)),
      table_(self.size, config.max_early_bytes) {
  std::sort(connections.begin(), connections.end(), [](const Connection& a, const Connection& b) {
    return std::pair(a.peer, a.number) < std::pair(b.peer, b.number);
  });
  for (Connection& one : connections) {
    if (config.tcp_keep_warm.count() > 0 && !one.memory && !one.mpi && cools_down(one.fd.get())) {
      cooling_.push_back(static_cast<int>(connections_.size()));
    }
    if (one.number == 1) stripes_[static_cast<std::size_t>(one.peer)] = std::make_unique<Stripes>(one.width);
    connections_.push_back(std::make_unique<DataConnection>(std::move(one), self, config.shm_chunk_bytes));
  }
}

StreamTransport::~StreamTransport() {
  leave();
}

void StreamTransport::leave() noexcept {
  {
    MutexLock lock(mutex_);
    HORO_CHECK(!progressing_);
    if (failed_ || std::exchange(has_left_, true)) return;
  }
  try {
    for (const auto& connection : connections_) {
      if (!connection->is_sending_op()) connection->begin_last(FrameKind::kGoodbye, {});
    }
    flush_last(kGoodbyePatience);
  } catch (const std::bad_alloc&) {
    log_warning("no memory to say goodbye on the data connections");
  }
}

Transport::Op StreamTransport::post_send(int peer, const Tag& tag, std::span<const std::byte> out) {
  HORO_CHECK(peer >= 0 && peer < self_.size && peer != self_.rank);
  MutexLock lock(mutex_);
  throw_if_failed();
  const Op op = table_.add_send(peer, tag, out);
  wake_progress();
  return op;
}

Transport::Op StreamTransport::post_recv(int peer, const Tag& tag, std::span<std::byte> in) {
  HORO_CHECK(peer >= 0 && peer < self_.size && peer != self_.rank);
  std::optional<EarlyMessage> early;
  Op op = 0;
  {
    MutexLock lock(mutex_);
    throw_if_failed();
    op = table_.add_recv(peer, tag, in, early);
    wake_progress();
  }
  if (!early) return op;
  if (!in.empty()) std::memcpy(in.data(), early->bytes.data(), in.size());
  MutexLock lock(mutex_);
  table_.received(op, early->frame_bytes);
  return op;
}

void StreamTransport::wait(std::span<const Op> ops, TimePoint deadline) {
  try {
    for (Turn turn = take_turn(ops, deadline); turn != Turn::kDone; turn = take_turn(ops, deadline)) {
      if (turn == Turn::kAgain) continue;
      progress(std::min<TimePoint>(deadline, Clock::now() + kWaitSlice));
      give_turn();
    }
  } catch (const Mismatch&) {
    flush_notices();
    throw;
  }
}

// Where nobody moves bytes, nobody hears a goodbye or an abort.
bool StreamTransport::has_left(int peer) {
  {
    MutexLock lock(mutex_);
    throw_if_failed();
    if (progressing_) return left_[static_cast<std::size_t>(peer)] != 0;
    progressing_ = true;
  }
  progress(Clock::now());
  give_turn();
  MutexLock lock(mutex_);
  throw_if_failed();
  return left_[static_cast<std::size_t>(peer)] != 0;
}

// A message that a peer waits for may have been begun here, and need MPI to be called once more.
TimePoint StreamTransport::tick() noexcept {
  if (!mpi_ && cooling_.empty()) return TimePoint::max();
  const TimePoint now = Clock::now();
  TimePoint again = TimePoint::max();
  {
    MutexLock lock(mutex_);
    if (failed_ || has_left_) return again;
    const bool is_busy = std::exchange(was_used_, false) || progressing_;
    if (is_busy) warm_until_ = now + config_.tcp_keep_warm;
    if (!cooling_.empty() && now < warm_until_) again = now + kWarmingEvery;
    if (progressing_ || (!mpi_ && (is_busy || again == TimePoint::max()))) return again;
    progressing_ = true;
  }
  if (mpi_) mpi_->progress();
  keep_warm();
  give_turn();
  return again;
}

void StreamTransport::stop_checksums() {
  MutexLock lock(mutex_);
  HORO_CHECK(!progressing_);
  for (const auto& connection : connections_) connection->stop_checksums();
}

// In vain where something waits to be sent: then the connection is not idle.
void StreamTransport::keep_warm() noexcept {
  for (const int at : cooling_) {
    DataConnection& connection = *connections_[static_cast<std::size_t>(at)];
    if (connection.has_unsent() || !connection.can_send()) continue;
    connection.begin_beat();
    connection.write();
    connection.take_sent();
  }
}

// The other members of a cancelled plan must learn of it even if this rank never waits again.
void StreamTransport::flush_notices() {
  const TimePoint until = Clock::now() + kLastWordsPatience;
  while (Clock::now() < until) {
    const Turn turn = take_turn_for_notices();
    if (turn == Turn::kDone) return;
    if (turn == Turn::kAgain) continue;
    progress(std::min<TimePoint>(until, Clock::now() + kWaitSlice));
    give_turn();
  }
}

StreamTransport::Turn StreamTransport::take_turn_for_notices() {
  MutexLock lock(mutex_);
  if (failed_ || table_.open_notices() == 0) return Turn::kDone;
  if (progressing_) {
    changed_.wait_until(mutex_, Clock::now() + kWaitSlice);
    return Turn::kAgain;
  }
  progressing_ = true;
  return Turn::kProgress;
}

StreamTransport::Turn StreamTransport::take_turn(std::span<const Op> ops, TimePoint deadline) {
  MutexLock lock(mutex_);
  // What has ended well has, also where a peer that needs no more of it was lost since.
  if (!ops.empty() && table_.finish(ops)) return Turn::kDone;
  throw_if_failed();
  if (ops.empty()) return Turn::kDone;
  check_peers(ops, deadline);
  throw_if_failed();
  if (progressing_) {
    changed_.wait_until(mutex_, std::min<TimePoint>(deadline, Clock::now() + kWaitSlice));
    return Turn::kAgain;
  }
  progressing_ = was_used_ = true;
  return Turn::kProgress;
}

// Operations with a peer that left in good order cannot end any more; nor those that are too late.
void StreamTransport::check_peers(std::span<const Op> ops, TimePoint deadline) {
  const bool all_here = std::find(left_.begin(), left_.end(), char{true}) == left_.end();
  for (const int peer : all_here ? std::vector<int>() : table_.waiting_for(ops)) {
    if (!left_[static_cast<std::size_t>(peer)]) continue;
    return fail(PeerLost(peer, say("rank ", self_.rank, ": rank ", peer, " left while messages were waited for")));
  }
  if (Clock::now() >= deadline) fail(PeerLost(table_.waiting_for(ops).front(), too_late(ops), Evidence::kLate));
}

std::string StreamTransport::too_late(std::span<const Op> ops) const {
  const Tag tag = table_.first_open(ops).value();
  return say("rank ", self_.rank, ": still waiting for ", say_ranks(table_.waiting_for(ops)), " on channel ",
             tag.channel, ", plan ", tag.plan, " at the deadline (HORO_DEADLINE_MS=", config_.deadline.count(), ")");
}

// Whoever hears of the end may free its memory, so first of all the connections let go of it: nobody holds the progress
// role then, and nobody can take it while we hold the lock.
void StreamTransport::throw_if_failed() {
  if (!failed_) return;
  while (progressing_) changed_.wait(mutex_);
  for (const auto& connection : connections_) {
    if (!has_released_) connection->release_all();
  }
  for (const auto& stripes : stripes_) {
    if (stripes) stripes->drop_all();
  }
  has_released_ = true;
  throw PeerLost(*failed_);
}

void StreamTransport::fail(const PeerLost& error) {
  if (!failed_) failed_.emplace(error);
  // Where nobody but this rank ended it, all still come to the end of MPI.
  if (mpi_ && error.origin() != self_.rank) mpi_->give_up(error.what());
  if (sleeping_) wakeup_.wake();
  changed_.notify_all();
}

void StreamTransport::wake_progress() {
  if (sleeping_) wakeup_.wake();
}

void StreamTransport::give_turn() {
  MutexLock lock(mutex_);
  progressing_ = false;
  changed_.notify_all();
}

void StreamTransport::abort(int origin, const std::string& reason) noexcept {
  {
    MutexLock lock(mutex_);
    try {
      fail(PeerLost(origin, reason));
    } catch (const std::bad_alloc&) {
      fail(no_memory_);
    }
    if (std::exchange(has_told_, true)) {
      while (!told_all_) changed_.wait(mutex_);  // whoever tells them may be writing from this caller's memory
      return;
    }
    while (progressing_) changed_.wait(mutex_);
    progressing_ = true;
  }
  try {
    const auto notice = encode(AbortNotice{origin, reason});
    const bool is_seen = origin >= 0 && origin == first_dead();
    for (const auto& connection : connections_) {
      // Who shares memory sees the same; its ring, or that of the dead one, may be full for ever.
      is_seen && connection->is_memory() ? connection->drop_all() : connection->begin_last(FrameKind::kAbort, notice);
    }
    flush_last(kLastWordsPatience);
  } catch (const std::bad_alloc&) {
    log_warning("no memory to tell the other ranks why; they will find the connection closed");
  }
  MutexLock lock(mutex_);
  for (const auto& connection : connections_) {
    if (!has_released_) connection->drop_all();
  }
  for (const auto& stripes : stripes_) {
    if (stripes) stripes->drop_all();
  }
  has_released_ = true;
  progressing_ = false;
  told_all_ = true;
  changed_.notify_all();
}

// A frame that is half out is finished first, so that what follows can be read; peers that do not read get none of it.
void StreamTransport::flush_last(Duration patience) {
  for (const TimePoint until = Clock::now() + patience; Clock::now() < until;) {
    polls_.clear();
    polled_.clear();
    bool is_ready = false;
    for (const auto& connection : connections_) {
      while (connection->write() > 0) {
      }
      if (!connection->can_send() || !connection->has_unsent()) continue;
      polled_.push_back(connection.get());
      polls_.push_back(connection->before_last_sleep());
      is_ready = is_ready || polls_.back().revents != 0;
    }
    if (polls_.empty()) break;
    ::poll(polls_.data(), polls_.size(), is_ready ? 0 : static_cast<int>(kWaitSlice.count()));
    for (std::size_t i = 0; i < polls_.size(); ++i) polled_[i]->after_sleep(polls_[i].revents);
  }
  for (const auto& connection : connections_) connection->shut_down_writing();
}

Traffic StreamTransport::traffic(std::uint32_t channel) const {
  MutexLock lock(mutex_);
  return table_.traffic(channel);
}

std::uint64_t StreamTransport::kernel_bytes_sent_to(int peer) const {
  std::uint64_t total = 0;
  for (const auto& connection : connections_) {
    tcp_info info{};
    socklen_t length = sizeof(info);
    if (connection->peer() != peer) continue;
    if (::getsockopt(connection->fd(), IPPROTO_TCP, TCP_INFO, &info, &length) != 0) continue;
    total += info.tcpi_bytes_sent - info.tcpi_bytes_retrans;
  }
  return total;
}

std::unique_ptr<Transport> make_stream_transport(const Config& config, const Identity& self,
                                              std::vector<Connection> connections, std::shared_ptr<ShmArenas> arenas) {
  return std::make_unique<StreamTransport>(config, self, std::move(connections), std::move(arenas));
}

}  // namespace horo
