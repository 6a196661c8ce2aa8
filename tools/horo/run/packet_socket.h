// PacketSocket: the guard's end of a socket to one member of an elastic job, or to the agent. Messages travel in
// packets (elastic/packets.h).
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "elastic/packets.h"
#include "tools/horo/machine/descriptor.h"
#include "tools/horo/run/events.h"

namespace horo::tools {

// The guard's end is non-blocking; both are close-on-exec.
struct PacketSocketPair {
  Descriptor guards, others;
};
PacketSocketPair make_packet_socket_pair();  // throws std::system_error
// Whether another process has passed an end of such a pair, whose other end is open; it is non-blocking then.
bool take_packet_socket(const Descriptor& end);

class PacketSocket {
 public:
  // The bytes of a message; may throw ProtocolError.
  using OnMessage = std::function<void(std::span<const std::byte>)>;
  // The socket is closed; `why`: the other side has sent no valid message, or reads none.
  using OnFault = std::function<void(const std::string& why)>;

  // A descriptor that the other side has passed, in a packet of its own; may throw ProtocolError.
  using OnDescriptor = std::function<void(Descriptor)>;

  struct Limits {
    std::size_t queued = 64;                  // messages that the other side does not read
    std::size_t message = kMaxMemberMessage;  // bytes
  };

  // `end`: of a socket pair, non-blocking. Calls the functions from the loop, or from read_all() and send().
  PacketSocket(struct ev_loop* loop, Descriptor end, OnMessage on_message, OnFault on_fault)
      : PacketSocket(loop, std::move(end), std::move(on_message), std::move(on_fault), Limits()) {}
  PacketSocket(struct ev_loop* loop, Descriptor end, OnMessage on_message, OnFault on_fault, const Limits& limits);

  // Without this, descriptors are closed.
  void set_on_descriptor(OnDescriptor on_descriptor) { on_descriptor_ = std::move(on_descriptor); }

  // Does not block: what the socket does not take is queued. Does nothing after the other end was closed.
  void send(std::vector<std::byte> message);
  // Reads all that has arrived: to be called before the end of the process counts.
  void read_all();

 private:
  struct Packet {
    std::vector<std::byte> bytes;
    bool is_last = true;  // of its message
  };

  void write_queued();
  bool write(const std::vector<std::byte>& message);  // false: the socket is full
  bool read_one();                                    // false: nothing has arrived
  void close();
  void fail(const std::string& why);

  OnMessage on_message_;
  OnFault on_fault_;
  OnDescriptor on_descriptor_;
  const std::size_t most_queued_;
  Descriptor end_;
  IoWatch readable_, writable_;
  std::deque<Packet> queue_;
  std::size_t queued_ = 0;  // messages of which the last packet is in the queue
  PacketJoiner joiner_;
  std::vector<std::byte> buffer_;
};

}  // namespace horo::tools
