// Without a job key ranks cannot authenticate one another, so only loopback addresses are used.

#include "ring/bootstrap/address.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iomanip>
#include <memory>
#include <stdexcept>
#include <string_view>
#include <system_error>

#include "horo/base/say.h"
#include "horo/base/time.h"
#include "horo/base/wire.h"
#include "ring/os/backoff.h"

namespace horo {
namespace {

constexpr std::chrono::milliseconds kBackOff{10};

std::uint16_t port_of(const Address& address) {
  const bool v6 = address.storage.ss_family == AF_INET6;
  return ntohs(v6 ? reinterpret_cast<const sockaddr_in6&>(address.storage).sin6_port
                  : reinterpret_cast<const sockaddr_in&>(address.storage).sin_port);
}

// The IPv4 addresses of this host's interfaces that are up and not loopback, with port 0.
std::vector<Address> outside_addresses() {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return {};
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, ::freeifaddrs);
  std::vector<Address> found;
  for (const ifaddrs* one = list; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr || one->ifa_addr->sa_family != AF_INET || (one->ifa_flags & IFF_UP) == 0) continue;
    Address address;
    address.length = sizeof(sockaddr_in);
    std::memcpy(&address.storage, one->ifa_addr, address.length);
    if (!is_loopback(address)) found.push_back(with_port(address, 0));
  }
  return found;
}

bool is_loopback_name(std::string_view host_port) {
  return host_port.starts_with("localhost:") || host_port.starts_with("127.") || host_port.starts_with("[::1]:");
}

}  // namespace

Fd listen_with_retry(const Address& address, Duration patience) {
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

std::string explain_listening(const std::system_error& error) {
  std::string text = error.what();
  switch (error.code().value()) {
    case EADDRINUSE:
      return text + ". End the program that listens there, or choose another port";
    case EADDRNOTAVAIL:
      return text +
             ": no interface of this host has that address; expected one that has, and that the other ranks reach";
    case EACCES:
      return text + ". Choose a port above 1023";
    default:
      return text;
  }
}

Address address_for_others(const Config& config) {
  const std::string& hub = config.launcher.hub;
  std::string why = "no launcher gives an address of the network between the hosts";
  if (!hub.empty()) {
    const std::string setting = "the address that " + config.launcher.name + " gives";
    const Address towards = address_towards(usable_addresses(config, hub, setting).front());
    if (!is_loopback(towards) || is_loopback_name(hub)) return towards;
    why = say(setting, ", ", hub, ", is a loopback address on this host");
  }
  const std::vector<Address> candidates = outside_addresses();
  if (candidates.size() == 1) return candidates.front();
  std::string list;
  for (const Address& one : candidates) list += (list.empty() ? "" : ", ") + to_text(one);
  throw std::invalid_argument(say("rank ", config.rank,
                                  " cannot determine the address by which the other hosts reach it: ", why,
                                  ", and its interfaces have ", list.empty() ? "none" : list,
                                  ". Set HORO_ADDR=host:port, an address of rank 0's host that all hosts can reach"));
}

Address rendezvous_socket(const Config& config) {
  const std::uint64_t name = hash64(config.job, hash64(config.launcher.job + '\0', hash64(config.launcher.name)));
  return abstract_address(say("horo/", ::geteuid(), "/", std::hex, std::setw(16), std::setfill('0'), name));
}

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
  listener.fd = listen_with_retry(address, config.hello_timeout);
  listener.published = with_port(address, port_of(local_address(listener.fd.get())));
  return listener;
}

}  // namespace horo
