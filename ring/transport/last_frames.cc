#include "ring/transport/last_frames.h"

#include <poll.h>

#include <vector>

namespace horo {

void begin_goodbye(const DataConnections& connections) {
  for (const auto& connection : connections) {
    if (!connection->out().is_sending_op()) connection->out().begin_last(FrameKind::kGoodbye, {});
  }
}

void begin_abort(const DataConnections& connections, const AbortNotice& notice, int dead) {
  const auto payload = encode(notice);
  const bool is_seen = notice.origin >= 0 && notice.origin == dead;
  for (const auto& connection : connections) {
    if (is_seen && connection->is_memory()) {
      connection->drop_all();
    } else {
      connection->out().begin_last(FrameKind::kAbort, payload);
    }
  }
}

// A frame that is being sent is completed first, so that the peer can read what follows. A peer that does not read does
// not receive the last frames.
void flush_last(const DataConnections& connections, Duration patience) {
  std::vector<pollfd> polls;
  std::vector<DataConnection*> polled;
  for (const TimePoint until = Clock::now() + patience; Clock::now() < until;) {
    polls.clear();
    polled.clear();
    bool is_ready = false;
    for (const auto& connection : connections) {
      while (connection->write() > 0) {
      }
      if (!connection->can_send() || !connection->out().has_unsent()) continue;
      polled.push_back(connection.get());
      polls.push_back(connection->before_last_sleep());
      is_ready = is_ready || polls.back().revents != 0;
    }
    if (polls.empty()) break;
    ::poll(polls.data(), polls.size(), is_ready ? 0 : static_cast<int>(kWaitSlice.count()));
    for (std::size_t i = 0; i < polls.size(); ++i) polled[i]->after_sleep(polls[i].revents);
  }
  for (const auto& connection : connections) connection->shut_down_writing();
}

}  // namespace horo
