// Which addresses a rank may use: Config::addr resolved, loopback alone for a job without a key.
#pragma once

#include <string>
#include <system_error>
#include <vector>

#include "horo/base/config.h"
#include "horo/base/time.h"
#include "ring/os/socket.h"

namespace horo {

// The addresses of "host:port" that this job may use. Throws std::invalid_argument naming `setting`, or HORO_KEY_FD and
// HORO_KEY_FILE where there is no key and no loopback address either.
std::vector<Address> usable_addresses(const Config& config, const std::string& host_port, const std::string& setting);

// A listener at this address alone, never at other interfaces. Throws std::system_error, also where no interface of
// this host has the address: then nobody would know where to be let in.
struct Listener {
  Fd fd;
  Address published;
};
Listener listen_for(const Config& config, const Address& address);

// A port or name that another program is about to give back (an earlier start of this job) is waited for a while.
// Throws std::system_error.
Fd listen_patiently(const Address& address, Duration patience);
// Its text, with what to do about it.
std::string explain_listening(const std::system_error& error);

// An address of this host, port 0, by which ranks on other hosts reach it: the one from which packets to the launcher's
// hub leave, or the only one there is. Throws std::invalid_argument: HORO_ADDR has to say it.
Address address_for_others(const Config& config);

// Where the ranks of one host meet: the name says which start of which job it is; the network namespace and the user's
// number keep others away.
Address meeting_socket(const Config& config);

}  // namespace horo
