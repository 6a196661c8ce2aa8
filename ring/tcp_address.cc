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

Address wildcard(const Address& address) {
  Address any = address;
  if (address.storage.ss_family == AF_INET6) {
    reinterpret_cast<sockaddr_in6&>(any.storage).sin6_addr = in6addr_any;
  } else {
    reinterpret_cast<sockaddr_in&>(any.storage).sin_addr.s_addr = htonl(INADDR_ANY);
  }
  return any;
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
    if (error.code().value() != EADDRNOTAVAIL || !config.key) throw;
    listener.fd = listen_patiently(wildcard(address), config.hello_timeout);
  }
  listener.published = with_port(address, port_of(local_address(listener.fd.get())));
  return listener;
}

}  // namespace horo
