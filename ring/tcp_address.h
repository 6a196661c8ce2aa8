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

// A listener at Config::addr with another port if `port` is given (0: any), for rank 0. Where the host is known by an
// address that none of its interfaces has, it listens at all of them, with a key alone.
struct Listener {
  Fd fd;
  Address published;
};
Listener listen_for(const Config& config, const Address& address);

}  // namespace horo
