// The progress role of a StreamTransport: moves the bytes of all connections. One thread at a time holds the role
// (StreamState::is_progressing) and is the only one that uses this object and the connections. It takes the transport's
// lock for short updates of the shared state alone.
#pragma once

#include <poll.h>

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "horo/base/config.h"
#include "ring/os/waiting.h"
#include "ring/shm/arena.h"
#include "ring/transport/data_connection.h"
#include "ring/transport/stream_state.h"
#include "ring/transport/stripes.h"

namespace horo {

class StreamProgress {
 public:
  // `arenas`: shows the deaths of peers that share memory; null: none does.
  StreamProgress(const Config& config, const Identity& self, std::vector<Connection> connections,
                 const ShmArenas* arenas, StreamState& state);

  // Moves bytes until an operation has ended, the transport has failed or `until` is reached. Polls for a short time,
  // then sleeps. An error ends the transport.
  void run(TimePoint until) noexcept;

  // No connection uses the memory of operations any more. release_all() copies what is still to be sent, up to a limit.
  void release_all();
  void drop_all() noexcept;

  const DataConnections& connections() const { return connections_; }

 private:
  void move_or_sleep(TimePoint until);
  bool sweep();
  bool begin_sends();
  bool begin_next(DataConnection& connection) REQUIRES(state_.mutex);
  bool send_to(DataConnection& connection);
  void on_sent(const DataConnection& connection, const Outgoing& message) REQUIRES(state_.mutex);

  bool receive_from(DataConnection& connection, const std::optional<OpTable::Expected>& expected = std::nullopt);
  bool place(DataConnection& connection);
  void on_frame(DataConnection& connection);
  void on_message(int peer, ReceivedMessage message);
  void on_notice(DataConnection& connection);
  void on_closed(int peer);
  void release(const PlanCancel& cancel);
  void apply_cancels();

  void sleep(TimePoint until);
  bool prepare_sleep();
  Duration longest_sleep();
  void after_sleep(DataConnection& connection, short revents);
  void throw_if_died() const;

  Stripes* stripes_with(int peer) const { return stripes_[static_cast<std::size_t>(peer)].get(); }

  const Identity& self_;
  const ShmArenas* const arenas_;  // null: none
  const WaitPatience patience_;
  const PeerLost no_memory_;  // out_of_memory_error()
  BriefWait brief_wait_;
  StreamState& state_;
  DataConnections connections_;                             // by rank and number
  std::vector<std::unique_ptr<Stripes>> stripes_;           // by rank; null where there is one connection
  std::vector<std::optional<OpTable::Expected>> expected_;  // by rank, in the present sweep
  std::vector<pollfd> polls_;
  std::vector<DataConnection*> polled_;
  Duration nap_ = kWaitSlice;  // the longest next sleep, where MPI carries the bytes
};

}  // namespace horo
