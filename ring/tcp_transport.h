// The Transport over sockets and shared memory (a peer is behind the one or the other), split over tcp_transport.cc
// (operations, waiting, ends) and tcp_progress.cc (moving bytes).
#pragma once

#include <poll.h>

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "horo/base/error.h"
#include "horo/base/mutex.h"
#include "ring/data_connection.h"
#include "ring/mpi_world.h"
#include "ring/op_table.h"
#include "ring/shm_arena.h"
#include "ring/tcp_parts.h"
#include "ring/waiting.h"

namespace horo {

class TcpTransport final : public Transport {
 public:
  TcpTransport(const Config& config, const Identity& self, std::vector<Connection> connections,
               std::optional<ShmSegment> arena);
  ~TcpTransport() override;

  int rank() const override { return self_.rank; }
  int size() const override { return self_.size; }
  Op post_send(int peer, const Tag& tag, std::span<const std::byte> out) override;
  Op post_recv(int peer, const Tag& tag, std::span<std::byte> in) override;
  void wait(std::span<const Op> ops, TimePoint deadline) override;
  void abort(int origin, const std::string& reason) noexcept override;
  void leave() noexcept override;
  std::shared_ptr<ShmArenas> arenas() const override { return arenas_; }
  std::shared_ptr<MpiWorld> mpi() const override { return mpi_; }
  bool has_left(int peer) override;
  void look() noexcept override;
  int first_dead() const noexcept override { return arenas_ ? arenas_->first_dead() : -1; }
  Traffic traffic(std::uint32_t channel) const override;
  std::uint64_t kernel_bytes_sent_to(int peer) const override;

 private:
  // What a waiting thread does next.
  enum class Turn { kDone, kProgress, kAgain };

  DataConnection* connection_to(int peer) { return connections_[static_cast<std::size_t>(peer)].get(); }
  Turn take_turn(std::span<const Op> ops, TimePoint deadline);
  void check_peers(std::span<const Op> ops, TimePoint deadline) REQUIRES(mutex_);
  std::string too_late(std::span<const Op> ops) const REQUIRES(mutex_);
  void throw_if_failed() REQUIRES(mutex_);
  void fail(const PeerLost& error) REQUIRES(mutex_);
  void wake_progress() REQUIRES(mutex_);
  void give_turn();
  void flush_last(Duration patience);
  void flush_notices();
  Turn take_turn_for_notices();

  // By the holder of the progress role alone, without the lock.
  void progress(TimePoint until) noexcept;
  void move_bytes(TimePoint until);
  void move_or_sleep(TimePoint until);
  bool sweep();
  bool find_work();
  void sleep(TimePoint until);
  Duration longest_sleep();
  void throw_if_died() const;
  void on_ready(DataConnection& connection, short revents);
  bool prepare_sleep();
  bool send_to(DataConnection& connection);
  bool receive_from(DataConnection& connection);
  bool place(DataConnection& connection);
  void end_message(DataConnection& connection);
  void on_notice(DataConnection& connection);
  void apply_cancels();

  const Config config_;
  const Identity self_;
  const Patience patience_;
  const PeerLost no_memory_;  // made in time
  const std::shared_ptr<ShmArenas> arenas_;
  const std::shared_ptr<MpiWorld> mpi_;  // null: no bytes go through MPI
  Wakeup wakeup_;
  Lookout lookout_;

  // These five belong to whoever holds the progress role.
  std::vector<std::unique_ptr<DataConnection>> connections_;  // by rank; none to oneself
  std::vector<pollfd> polls_;
  std::vector<DataConnection*> polled_;
  std::vector<char> expects_;
  Duration nap_ = kWaitSlice;  // the next sleep, where MPI has to be looked at

  mutable Mutex mutex_;
  CondVar changed_;
  bool progressing_ GUARDED_BY(mutex_) = false;   // somebody holds the progress role
  bool sleeping_ GUARDED_BY(mutex_) = false;      // and sleeps in poll
  bool has_released_ GUARDED_BY(mutex_) = false;  // no memory of operations is held any more
  bool has_told_ GUARDED_BY(mutex_) = false;      // somebody sends abort notices
  bool told_all_ GUARDED_BY(mutex_) = false;      // and is through: nobody holds the progress role any more
  std::optional<PeerLost> failed_ GUARDED_BY(mutex_);
  bool has_left_ GUARDED_BY(mutex_) = false;   // this rank
  std::vector<char> left_ GUARDED_BY(mutex_);  // by rank: its connection has ended in good order
  OpTable table_ GUARDED_BY(mutex_);
};

}  // namespace horo
