// The thin layer over the BSD socket calls.

#include "ring/os/socket.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/eventfd.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string_view>
#include <system_error>

#include "horo/base/forked.h"
#include "horo/base/say.h"
#include "ring/os/any_address.h"

namespace horo {
namespace {

constexpr int kMostWaiting = 65'535;  // connections at a listener; the system limits it to net.core.somaxconn

const sockaddr* raw(const Address& address) {
  return reinterpret_cast<const sockaddr*>(&address.storage);
}
sockaddr* raw(Address& address) {
  return reinterpret_cast<sockaddr*>(&address.storage);
}

void set_option(int fd, int level, int name, int value = 1) noexcept {
  ::setsockopt(fd, level, name, &value, sizeof(value));
}

Moved moved(ssize_t result, bool zero_ends) noexcept {
  if (result > 0) return {static_cast<std::size_t>(result), false, 0};
  if (result == 0) return {0, zero_ends, 0};
  if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return {};
  return {0, true, errno};
}

}  // namespace

void raise_errno(const std::string& what) {
  throw std::system_error(errno, std::generic_category(), what);
}

Fd::Fd(int fd) : fd_(fd) {
  if (fd_ >= 0) own_descriptor(fd_);
}

Fd::~Fd() {
  if (fd_ >= 0 && give_up_descriptor(fd_)) ::close(fd_);
}

std::vector<Address> resolve(const std::string& host_port, const std::string& setting) {
  const std::size_t colon = host_port.rfind(':');
  if (colon == std::string::npos || colon == 0 || colon + 1 == host_port.size()) {
    throw std::invalid_argument(say(setting, "=", host_port, ": expected host:port"));
  }
  std::string host = host_port.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  const int error = ::getaddrinfo(host.c_str(), host_port.c_str() + colon + 1, &hints, &list);
  if (error != 0) {
    throw std::invalid_argument(say(setting, "=", host_port, ": ", ::gai_strerror(error), ". Expected host:port with ",
                                    "a name that this host can resolve, or a numeric address"));
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(list, ::freeaddrinfo);
  std::vector<Address> found;
  for (const addrinfo* one = list; one != nullptr; one = one->ai_next) {
    if (is_any_address(*one->ai_addr)) {
      throw std::invalid_argument(say(setting, "=", host_port, ": ", host, " stands for all interfaces of a host, and ",
                                      "other hosts cannot connect to it. Expected the address of one interface (ip ",
                                      "addr), or 127.0.0.1 for one host alone"));
    }
    Address address;
    std::memcpy(&address.storage, one->ai_addr, one->ai_addrlen);
    address.length = one->ai_addrlen;
    found.push_back(address);
  }
  return found;
}

std::string to_text(const Address& address) {
  if (address.storage.ss_family == AF_UNIX) {
    constexpr std::size_t kUnnamed = offsetof(sockaddr_un, sun_path) + 1;
    if (address.length <= kUnnamed) return "a socket without a name";
    const auto& path = reinterpret_cast<const sockaddr_un&>(address.storage).sun_path;
    return "@" + std::string(path + 1, address.length - kUnnamed);
  }
  char host[NI_MAXHOST] = "?", port[NI_MAXSERV] = "?";
  ::getnameinfo(raw(address), address.length, host, sizeof(host), port, sizeof(port), NI_NUMERICHOST | NI_NUMERICSERV);
  return address.storage.ss_family == AF_INET6 ? say("[", host, "]:", port) : say(host, ":", port);
}

bool is_loopback(const Address& address) {
  if (address.storage.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(address.storage);
    return (ntohl(v4.sin_addr.s_addr) >> 24) == 127;
  }
  const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address.storage);
  return address.storage.ss_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&v6.sin6_addr);
}

Address abstract_address(const std::string& name) {
  Address address;
  auto& unix_address = reinterpret_cast<sockaddr_un&>(address.storage);
  if (name.size() >= sizeof(unix_address.sun_path)) {
    throw std::invalid_argument(say("the socket name '", name, "' is longer than ", sizeof(unix_address.sun_path) - 1));
  }
  unix_address.sun_family = AF_UNIX;
  std::memcpy(unix_address.sun_path + 1, name.data(), name.size());
  address.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return address;
}

std::optional<uid_t> peer_user(int fd) noexcept {
  int family = 0;
  socklen_t length = sizeof(family);
  if (::getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &family, &length) != 0 || family != AF_UNIX) return std::nullopt;
  ucred user{};
  length = sizeof(user);
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &user, &length) != 0) return static_cast<uid_t>(-1);
  return user.uid;
}

Address with_port(Address address, std::uint16_t port) {
  if (address.storage.ss_family == AF_INET6) {
    reinterpret_cast<sockaddr_in6&>(address.storage).sin6_port = htons(port);
  } else {
    reinterpret_cast<sockaddr_in&>(address.storage).sin_port = htons(port);
  }
  return address;
}

Address local_address(int fd) {
  Address address;
  address.length = sizeof(address.storage);
  if (::getsockname(fd, raw(address), &address.length) != 0) raise_errno("getsockname");
  return address;
}

std::string peer_text(int fd) {
  Address address;
  address.length = sizeof(address.storage);
  return ::getpeername(fd, raw(address), &address.length) == 0 ? to_text(address) : "?";
}

std::uint64_t source_of(int fd) noexcept {
  Address address;
  address.length = sizeof(address.storage);
  std::uint64_t source = 0;
  if (::getpeername(fd, raw(address), &address.length) != 0) return source;
  if (address.storage.ss_family == AF_INET) {
    std::memcpy(&source, &reinterpret_cast<const sockaddr_in&>(address.storage).sin_addr, sizeof(in_addr));
  } else if (address.storage.ss_family == AF_INET6) {
    std::memcpy(&source, &reinterpret_cast<const sockaddr_in6&>(address.storage).sin6_addr, sizeof(source));
  }
  return source;
}

// Connecting a datagram socket sends nothing: it asks the routing table.
Address address_towards(const Address& peer) {
  const Fd probe(::socket(peer.storage.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!probe.is_open() || ::connect(probe.get(), raw(peer), peer.length) != 0)
    raise_errno("no route to " + to_text(peer));
  return with_port(local_address(probe.get()), 0);
}

Fd listen_at(const Address& address) {
  Fd fd(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.is_open()) raise_errno("socket");
  set_option(fd.get(), SOL_SOCKET, SO_REUSEADDR);
  if (::bind(fd.get(), raw(address), address.length) != 0) raise_errno("cannot listen at " + to_text(address));
  if (::listen(fd.get(), kMostWaiting) != 0) raise_errno("cannot listen at " + to_text(address));
  return fd;
}

Fd accept_at(int listener) noexcept {
  Fd fd(::accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (fd.is_open()) set_option(fd.get(), IPPROTO_TCP, TCP_NODELAY);
  return fd;
}

Fd dial(const Address& address) noexcept {
  Fd fd(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.is_open()) return fd;
  set_option(fd.get(), IPPROTO_TCP, TCP_NODELAY);
  if (::connect(fd.get(), raw(address), address.length) != 0 && errno != EINPROGRESS) return Fd();
  return fd;
}

int error_of(int fd) noexcept {
  int error = 0;
  socklen_t length = sizeof(error);
  return ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) == 0 ? error : errno;
}

bool is_within_host(int fd) noexcept {
  Address here, there;
  here.length = there.length = sizeof(here.storage);
  if (::getsockname(fd, raw(here), &here.length) != 0 || ::getpeername(fd, raw(there), &there.length) != 0)
    return false;
  if (here.storage.ss_family != AF_INET && here.storage.ss_family != AF_INET6) return false;
  here = with_port(here, 0), there = with_port(there, 0);
  return here.length == there.length && std::memcmp(&here.storage, &there.storage, here.length) == 0;
}

void pace_nothing(int fd) noexcept {
  constexpr char kName[] = "reno";
  ::setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, kName, sizeof(kName) - 1);
}

std::size_t packet_bytes(int fd) noexcept {
  int bytes = 0;
  socklen_t length = sizeof(bytes);
  return ::getsockopt(fd, IPPROTO_TCP, TCP_MAXSEG, &bytes, &length) == 0 && bytes > 0 ? static_cast<std::size_t>(bytes)
                                                                                      : 0;
}

bool cools_down(int fd) noexcept {
  constexpr std::uint32_t kLongUs = 1'000;
  tcp_info info{};
  socklen_t length = sizeof(info);
  if (::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) != 0 || info.tcpi_rtt <= kLongUs) return false;
  std::array<char, 16> name{};  // TCP_CA_NAME_MAX
  length = name.size();
  if (::getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name.data(), &length) != 0) return false;
  if (std::string_view(name.data()).starts_with("bbr")) return false;
  char after_idle = '1';
  const Fd file(::open("/proc/sys/net/ipv4/tcp_slow_start_after_idle", O_RDONLY | O_CLOEXEC));
  return !file.is_open() || ::read(file.get(), &after_idle, 1) != 1 || after_idle != '0';
}

// The first probe goes after half of the limit, three fit into the other half. The kernel sends at most one per second.
// There is time for three, so that a single lost probe ends no connection.
void limit_silence(int fd, std::chrono::milliseconds limit) noexcept {
  using std::chrono::seconds;
  constexpr int kProbes = 3;
  constexpr seconds kMost{32'767};  // of what the kernel accepts
  const auto share = [&](int parts) {
    return std::clamp(std::chrono::duration_cast<seconds>(limit / parts), seconds(1), kMost);
  };
  const seconds idle = share(2), interval = share(2 * kProbes);
  const auto silence = std::max<std::chrono::milliseconds>(limit, idle + kProbes * interval);
  set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<int>(silence.count()));
  set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, static_cast<int>(idle.count()));
  set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, static_cast<int>(interval.count()));
  set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, kProbes);
  set_option(fd, SOL_SOCKET, SO_KEEPALIVE);
}

Moved receive_some(int fd, std::span<iovec> into) noexcept {
  if (into.size() == 1) return moved(::recv(fd, into[0].iov_base, into[0].iov_len, MSG_DONTWAIT), true);
  msghdr message{};
  message.msg_iov = into.data();
  message.msg_iovlen = into.size();
  return moved(::recvmsg(fd, &message, MSG_DONTWAIT), true);
}

Moved send_some(int fd, std::span<iovec> from) noexcept {
  constexpr int kFlags = MSG_DONTWAIT | MSG_NOSIGNAL;
  if (from.size() == 1) return moved(::send(fd, from[0].iov_base, from[0].iov_len, kFlags), false);
  msghdr message{};
  message.msg_iov = from.data();
  message.msg_iovlen = from.size();
  return moved(::sendmsg(fd, &message, kFlags), false);
}

Wakeup::Wakeup() : fd_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  if (!fd_.is_open()) raise_errno("eventfd");
}

void Wakeup::wake() noexcept {
  if (pending_.exchange(true)) return;
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(fd_.get(), &one, sizeof(one));
}

// Reads first. A wake() that finds the flag still set needs no write, because the caller checks its state after
// clear(). A write that arrives later causes one wake-up too many, never one too few.
void Wakeup::clear() noexcept {
  std::uint64_t count = 0;
  [[maybe_unused]] const ssize_t taken = ::read(fd_.get(), &count, sizeof(count));
  pending_.exchange(false);
}

}  // namespace horo
