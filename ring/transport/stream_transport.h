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
#include "ring/mpi/mpi_world.h"
#include "ring/os/waiting.h"
#include "ring/shm/arena.h"
#include "ring/transport/data_connection.h"
#include "ring/transport/factories.h"
#include "ring/transport/op_table.h"
#include "ring/transport/stripes.h"

namespace horo {

class StreamTransport final : public Transport {
 public:
  StreamTransport(const Config& config, const Identity& self, std::vector<Connection> connections,
                  std::shared_ptr<ShmArenas> arenas);
  ~StreamTransport() override;

  int rank() const override { return self_.rank; }
  int size() const override { return self_.size; }
  Op post_send(int peer, const Tag& tag, std::span<const std::byte> out) override;
  Op post_recv(int peer, const Tag& tag, std::span<std::byte> in) override;
  void wait(std::span<const Op> ops, TimePoint deadline) override;
  void abort(int origin, const std::string& reason) noexcept override;
  void leave() noexcept override;
  bool has_left(int peer) override;
  TimePoint tick() noexcept override;
  void stop_checksums() override;
  int first_dead() const noexcept override { return arenas_ ? arenas_->first_dead() : -1; }
  Traffic traffic(std::uint32_t channel) const override;
  std::uint64_t kernel_bytes_sent_to(int peer) const override;

 private:
  // What a waiting thread does next.
  enum class Turn { kDone, kProgress, kAgain };

  Stripes* stripes_with(int peer) const { return stripes_[static_cast<std::size_t>(peer)].get(); }
  Turn take_turn(std::span<const Op> ops, TimePoint deadline);
  void check_peers(std::span<const Op> ops, TimePoint deadline) REQUIRES(mutex_);
  std::string too_late(std::span<const Op> ops) const REQUIRES(mutex_);
  void throw_if_failed() REQUIRES(mutex_);
  void fail(const PeerLost& error) REQUIRES(mutex_);
  std::optional<Outgoing> next_for(const DataConnection& connection) REQUIRES(mutex_);
  void on_sent(const DataConnection& connection, const Outgoing& message) REQUIRES(mutex_);
  void wake_progress() REQUIRES(mutex_);
  void give_turn();
  void keep_warm() noexcept;
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
  bool receive_from(DataConnection& connection, const std::optional<OpTable::Expected>& expected = std::nullopt);
  bool place(DataConnection& connection);
  bool place_piece(DataConnection& connection);
  void end_frame(DataConnection& connection);
  void end_message(int peer, Stripes::Received message);
  void release(const PlanCancel& cancel);
  bool has_closed(int peer) const;
  void on_notice(DataConnection& connection);
  void apply_cancels();

  const Config config_;
  const Identity self_;
  const WaitPatience patience_;
  const PeerLost no_memory_;  // made in time
  const std::shared_ptr<ShmArenas> arenas_;
  const std::shared_ptr<MpiWorld> mpi_;  // null: no bytes go through MPI
  Wakeup wakeup_;
  Lookout lookout_;

  std::vector<int> cooling_;  // places in connections_ of those that start slowly after a pause

  // These six belong to whoever holds the progress role.
  std::vector<std::unique_ptr<DataConnection>> connections_;  // by rank and number
  std::vector<std::unique_ptr<Stripes>> stripes_;             // by rank; none where there is one connection
  std::vector<pollfd> polls_;
  std::vector<DataConnection*> polled_;
  std::vector<std::optional<OpTable::Expected>> expected_;  // by rank, in the present sweep
  Duration nap_ = kWaitSlice;                               // the next sleep, where MPI has to be looked at

  mutable Mutex mutex_;
  CondVar changed_;
  bool progressing_ GUARDED_BY(mutex_) = false;  // somebody holds the progress role
  bool sleeping_ GUARDED_BY(mutex_) = false;     // and sleeps in poll
  bool was_used_ GUARDED_BY(mutex_) = false;     // since tick() was last called
  TimePoint warm_until_ GUARDED_BY(mutex_) = TimePoint::min();
  bool has_released_ GUARDED_BY(mutex_) = false;  // no memory of operations is held any more
  bool has_told_ GUARDED_BY(mutex_) = false;      // somebody sends abort notices
  bool told_all_ GUARDED_BY(mutex_) = false;      // and is through: nobody holds the progress role any more
  std::optional<PeerLost> failed_ GUARDED_BY(mutex_);
  bool has_left_ GUARDED_BY(mutex_) = false;   // this rank
  std::vector<char> left_ GUARDED_BY(mutex_);  // by rank: its connection has ended in good order
  OpTable table_ GUARDED_BY(mutex_);
};

}  // namespace horo
