// Which addresses a rank may use: Config::addr resolved, loopback alone for a job without a key.
#pragma once

#include <string>
#include <vector>

#include "horo/base/config.h"
#include "ring/socket.h"

namespace horo {

// The addresses of "host:port" that this job may use. Throws std::invalid_argument naming `setting`, or HORO_KEY_FD and
// HORO_KEY_FILE where there is no key and no loopback address either.
std::vector<Address> usable_addresses(const Config& config, const std::string& host_port, const std::string& setting);

// A listener at this address alone, never at other interfaces. Throws std::system_error, also where no interface of this
// host has the address: then nobody would know where to be let in.
struct Listener {
  Fd fd;
  Address published;
};
Listener listen_for(const Config& config, const Address& address);

}  // namespace horo
