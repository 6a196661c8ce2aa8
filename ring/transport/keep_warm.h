// Keeps idle TCP connections from starting slowly again. A connection that was idle for longer than its retransmission
// timeout has a small congestion window, unless it uses BBR; the first message after each pause then takes several
// round trips. So for HORO_TCP_KEEP_WARM_MS after the last message an empty frame is sent every 100 ms on the
// connections whose round trip takes more than 1 ms (cools_down in ring/os/socket.h).
#pragma once

#include <chrono>
#include <utility>
#include <vector>

#include "horo/base/time.h"
#include "ring/transport/data_connection.h"

namespace horo {

class KeepWarm {
 public:
  // `connections` need beats, and outlive this; `duration`: of beats after the last message.
  KeepWarm(std::vector<DataConnection*> connections, Duration duration)
      : connections_(std::move(connections)), duration_(duration) {}

  bool is_needed() const { return !connections_.empty(); }

  // The time of the next call, max() where no beats are due. `is_busy`: messages were moved since the last call. Under
  // the transport's lock.
  TimePoint next_beat(TimePoint now, bool is_busy) {
    if (is_busy) warm_until_ = now + duration_;
    return is_needed() && now < warm_until_ ? now + kInterval : TimePoint::max();
  }

  // Called by the holder of the progress role. A connection with unsent bytes is not idle and gets no beat.
  void send_beats() noexcept {
    for (DataConnection* connection : connections_) {
      if (connection->out().has_unsent() || !connection->can_send()) continue;
      connection->out().begin_beat();
      connection->write();
      connection->out().take_sent();
    }
  }

 private:
  static constexpr std::chrono::milliseconds kInterval{100};  // half of the shortest retransmission timeout of Linux

  const std::vector<DataConnection*> connections_;
  const Duration duration_;
  TimePoint warm_until_ = TimePoint::min();
};

}  // namespace horo
