// The sockets of a Door.
#pragma once

#include <string>

#include "ring/bootstrap/address.h"
#include "ring/links.h"
#include "ring/os/socket.h"

namespace horo {

// The Unix socket at which ranks of this host connect to share memory. Not open where Config::transport is "tcp", or
// where listening fails and Config::transport does not require shared memory. The name is random, and a peer must
// authenticate itself as at any other socket.
struct LocalListener {
  Fd fd;
  std::string name;
};

struct Listeners {
  Listener data;
  LocalListener local;
};

}  // namespace horo
