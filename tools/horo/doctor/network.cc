// The addresses of this host, those that a job would use, and a test of the loopback interface.
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <stdexcept>

#include "horo/base/say.h"
#include "ring/os/socket.h"
#include "tools/horo/doctor/doctor.h"

namespace horo::tools {
namespace {

constexpr int kLoopbackPatienceMs = 2'000;

struct Interface {
  unsigned flags = 0;
  std::string addresses;
};

Address address_from(const sockaddr& raw) {
  Address address;
  address.length = raw.sa_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  std::memcpy(&address.storage, &raw, address.length);
  return address;
}

// Without the port and its brackets.
std::string host_of(const Address& address) {
  const std::string text = to_text(address);
  const std::string host = text.substr(0, text.rfind(':'));
  return host.starts_with('[') ? host.substr(1, host.size() - 2) : host;
}

std::map<std::string, Interface> interfaces() {
  std::map<std::string, Interface> found;
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return found;
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, ::freeifaddrs);
  for (const ifaddrs* one = list; one != nullptr; one = one->ifa_next) {
    Interface& interface = found[one->ifa_name];
    interface.flags = one->ifa_flags;
    if (one->ifa_addr == nullptr) continue;
    if (one->ifa_addr->sa_family != AF_INET && one->ifa_addr->sa_family != AF_INET6) continue;
    interface.addresses += (interface.addresses.empty() ? "" : ", ") + host_of(address_from(*one->ifa_addr));
  }
  return found;
}

// "10.0.0.2 (eth0)": the local address of connections to `peer`.
std::string path_to(const Address& peer, const std::map<std::string, Interface>& known) {
  std::string host = host_of(address_towards(peer));
  for (const auto& [name, interface] : known) {
    const std::string listed = say(", ", interface.addresses, ",");
    if (listed.find(say(", ", host, ",")) != std::string::npos) return say(host, " (", name, ")");
  }
  return host;
}

// Sends a byte over a connection to this process. Returns "", or the reason if it does not arrive. Blocks up to 4 s.
std::string try_loopback(const char* host_port) {
  try {
    const Fd listener = listen_at(resolve(host_port, "loopback").front());
    const Fd dialer = dial(local_address(listener.get()));
    pollfd waiting{listener.get(), POLLIN, 0};
    if (!dialer.is_open() || ::poll(&waiting, 1, kLoopbackPatienceMs) != 1) return "a connection did not arrive";
    const Fd accepted = accept_at(listener.get());
    std::byte byte{7};
    iovec part = as_iovec({&byte, 1});
    pollfd arrived{dialer.get(), POLLIN, 0};
    if (!accepted.is_open() || send_some(accepted.get(), {&part, 1}).bytes != 1) return std::strerror(errno);
    return ::poll(&arrived, 1, kLoopbackPatienceMs) == 1 ? "" : "a byte did not arrive";
  } catch (const std::exception& error) {
    return error.what();
  }
}

void add_own_name(Section& network, DoctorReport& report) {
  char name[256] = "?";
  ::gethostname(name, sizeof(name) - 1);
  network.add("host_name", std::string(name));
  try {
    network.add("host_name_is", host_of(resolve(std::string(name) + ":1", "the name of this host").front()));
  } catch (const std::invalid_argument& error) {
    network.add("host_name_is", {});
    report.hints.push_back({say("the name of this host does not resolve (", error.what(), ")"),
                            "other hosts of a job need an address in HORO_ADDR, or put the name into /etc/hosts"});
  }
}

void add_chosen(Section& network, DoctorReport& report, const std::map<std::string, Interface>& known) {
  const char* addr = std::getenv("HORO_ADDR");
  if (addr != nullptr) {
    try {
      network.add("towards_rank_0", path_to(resolve(addr, "HORO_ADDR").front(), known));
    } catch (const std::exception& error) {
      report.problems.push_back({error.what(),
                                 "HORO_ADDR must be host:port where rank 0 listens, with a host that every rank can "
                                 "resolve and reach; an address instead of a name rules out the resolver"});
    }
  }
  network.add("one_host", std::string("127.0.0.1 (loopback)"));
  try {
    // A documentation address (RFC 5737): its route is that of packets to other networks.
    network.add("other_hosts", path_to(resolve("192.0.2.1:1", "the way out").front(), known));
  } catch (const std::exception&) {
    network.add("other_hosts", {});
  }
}

}  // namespace

void examine_network(DoctorReport& report) {
  const auto known = interfaces();
  Section list{"interfaces", {}};
  for (const auto& [name, interface] : known) {
    const std::string state = (interface.flags & IFF_UP) != 0 ? "up" : "down";
    list.add(name, interface.addresses.empty() ? state : state + ", " + interface.addresses);
  }
  report.sections.push_back(std::move(list));
  Section network{"network", {}};
  add_own_name(network, report);
  add_chosen(network, report, known);
  const std::string why = try_loopback("127.0.0.1:0");
  network.add("loopback_works", why.empty());
  network.add("loopback_v6_works", try_loopback("[::1]:0").empty());
  if (!why.empty()) {
    report.problems.push_back({"the loopback 127.0.0.1 does not work: " + why,
                               "ranks of one host communicate over it: bring it up (ip link set lo up), and let no "
                               "firewall rule drop packets from 127.0.0.1"});
  }
  report.sections.push_back(std::move(network));
}

}  // namespace horo::tools
