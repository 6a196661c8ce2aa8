// Tun: an end of the line: a network device of a namespace whose packets this process gets and gives.
#pragma once

#include <optional>
#include <string>

#include "tools/horo/machine/descriptor.h"
#include "tools/relay/packet.h"

namespace horo::tools::relay {

class Tun {
 public:
  // In the network namespace of that name (ip netns); the device goes with this object. Changes the namespace of the
  // calling thread for a moment. Throws std::system_error.
  Tun(const std::string& name_space, const std::string& device);

  int fd() const { return fd_.get(); }
  // Neither blocks. Nothing: there is none now.
  std::optional<Packet> read();
  // False: the kernel does not take it, as its end of the line is down.
  bool write(const Packet& packet);

 private:
  Descriptor fd_;
  std::vector<std::byte> buffer_;
};

}  // namespace horo::tools::relay
