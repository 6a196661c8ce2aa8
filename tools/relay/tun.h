// Tun: one end of the line: a network device in a namespace; this process reads and writes its packets.
#pragma once

#include <optional>
#include <string>

#include "tools/horo/machine/descriptor.h"
#include "tools/relay/packet.h"

namespace horo::tools::relay {

class Tun {
 public:
  // Creates the device in the network namespace of that name (ip netns); the destructor removes it. Enters the
  // namespace during the call, in the calling thread. Throws std::system_error.
  Tun(const std::string& name_space, const std::string& device);

  int fd() const { return fd_.get(); }
  // Does not block. Empty: there is no packet.
  std::optional<Packet> read();
  // Does not block. False: the kernel does not accept the packet, because the device is down.
  bool write(const Packet& packet);

 private:
  Descriptor fd_;
  std::vector<std::byte> buffer_;
};

}  // namespace horo::tools::relay
