// Without a job key nobody can prove anything, so nothing beyond this host may be reached.

#include "ring/tcp_address.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <system_error>

#include "horo/base/time.h"
#include "ring/backoff.h"
#include "ring/say.h"

namespace horo {
namespace {

constexpr std::chrono::milliseconds kBackOff{10};

std::uint16_t port_of(const Address& address) {
  const bool v6 = address.storage.ss_family == AF_INET6;
  return ntohs(v6 ? reinterpret_cast<const sockaddr_in6&>(address.storage).sin6_port
                  : reinterpret_cast<const sockaddr_in&>(address.storage).sin_port);
}

// A port that another program is about to give back (an earlier start of this job) is waited for a while.
Fd listen_patiently(const Address& address, Duration patience) {
  const TimePoint until = Clock::now() + patience;
  while (true) {
    try {
      return listen_at(address);
    } catch (const std::system_error& error) {
      if (error.code().value() != EADDRINUSE || Clock::now() >= until) throw;
    }
    back_off(kBackOff);
  }
}

}  // namespace

std::vector<Address> usable_addresses(const Config& config, const std::string& host_port, const std::string& setting) {
  std::vector<Address> addresses = resolve(host_port, setting);
  if (config.key) return addresses;
  std::erase_if(addresses, [](const Address& one) { return !is_loopback(one); });
  if (!addresses.empty()) return addresses;
  throw std::invalid_argument(say(setting, "=", host_port,
                                  " is not a loopback address: ranks on several hosts need a job key "
                                  "(HORO_KEY_FD or HORO_KEY_FILE)"));
}

Listener listen_for(const Config& config, const Address& address) {
  Listener listener;
  try {
    listener.fd = listen_patiently(address, config.hello_timeout);
  } catch (const std::system_error& error) {
    if (error.code().value() != EADDRNOTAVAIL) throw;
    throw std::system_error(error.code(),
                            say("cannot listen at ", to_text(address),
                                ": no interface of this host has that address; expected one that has, and "
                                "that the other ranks reach"));
  }
  listener.published = with_port(address, port_of(local_address(listener.fd.get())));
  return listener;
}

}  // namespace horo
