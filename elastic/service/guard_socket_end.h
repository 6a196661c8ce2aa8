// GuardSocketEnd: the agent's end of the socket to the guard of its host. Messages travel in packets
// (elastic/packets.h).
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "elastic/host_messages.h"
#include "elastic/packets.h"
#include "horo/base/mutex.h"
#include "horo/base/time.h"

namespace horo {

class GuardSocketEnd {
 public:
  // The socket stays open in the caller's hands. Throws std::system_error.
  explicit GuardSocketEnd(int fd);
  ~GuardSocketEnd();
  GuardSocketEnd(const GuardSocketEnd&) = delete;
  GuardSocketEnd& operator=(const GuardSocketEnd&) = delete;

  // Any thread. Blocks while the guard reads nothing.
  void send(const AgentSays& message);
  // The next functions: one thread. A message; nothing: `until` has passed, wake() was called, or the guard has closed
  // its end. Throws ProtocolError or std::system_error.
  std::optional<std::vector<std::byte>> receive(TimePoint until);
  bool is_closed() const { return is_closed_; }
  // Any thread: ends one receive().
  void wake() noexcept;

 private:
  std::optional<std::vector<std::byte>> read_packet();

  const int fd_;
  int wake_fd_ = -1;
  Mutex mutex_;  // packets of one message stay together
  bool is_closed_ = false;
  PacketJoiner joiner_{kMaxHostMessage};
  std::vector<std::byte> buffer_;
};

}  // namespace horo
