// Which addresses a rank may use: Config::addr resolved, loopback alone for a job without a key.
#pragma once

#include <string>
#include <system_error>
#include <vector>

#include "horo/base/config.h"
#include "horo/base/time.h"
#include "ring/os/socket.h"

namespace horo {

// The addresses of "host:port" that this job may use. Throws std::invalid_argument, naming `setting`; where the job has
// no key and there is no loopback address, it names HORO_KEY_FD and HORO_KEY_FILE as well.
std::vector<Address> usable_addresses(const Config& config, const std::string& host_port, const std::string& setting);

// A listener at this address alone, never at other interfaces. Throws std::system_error, also where no interface of
// this host has the address, because no rank could reach it.
struct Listener {
  Fd fd;
  Address published;
};
Listener listen_for(const Config& config, const Address& address);

// Listens at the address. While the address is in use, for example by an earlier start of this job that is about to
// end, it tries again until `patience` has passed. Throws std::system_error.
Fd listen_with_retry(const Address& address, Duration patience);
// The text of the error, with its remedy.
std::string explain_listening(const std::system_error& error);

// An address of this host, with port 0, by which ranks on other hosts reach it: the source address of packets to the
// launcher's hub, or the only address that the interfaces have. Throws std::invalid_argument, which asks for HORO_ADDR,
// where neither exists.
Address address_for_others(const Config& config);

// The Unix socket of rank 0, by which the ranks of one host find one another. Its name is derived from the user's
// number, the launcher's job and Config::job; it is visible inside this network namespace alone.
Address rendezvous_socket(const Config& config);

}  // namespace horo
