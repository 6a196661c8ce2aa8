// Sockets: descriptors that close themselves, addresses, and non-blocking calls that return their outcome as a value.
// Every descriptor is close-on-exec, every socket non-blocking, every TCP connection TCP_NODELAY.
#pragma once

#include <sys/socket.h>
#include <sys/uio.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "horo/base/time.h"

namespace horo {

// Throws std::system_error with errno. `what`: what could not be done.
[[noreturn]] void raise_errno(const std::string& what);

// Owns a descriptor. In a forked child the descriptor is closed already, and its number may be in use for something
// else: see horo/base/forked.h.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd);
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Fd();
  int get() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

struct Address {
  sockaddr_storage storage{};
  socklen_t length = 0;
};

// "host:port", "1.2.3.4:port" or "[::1]:port". Throws std::invalid_argument naming `setting`.
std::vector<Address> resolve(const std::string& host_port, const std::string& setting);
// The numeric form, which resolve() parses.
std::string to_text(const Address& address);
bool is_loopback(const Address& address);
Address with_port(Address address, std::uint16_t port);
// The address of this host from which packets to `peer` leave, port 0.
Address address_towards(const Address& peer);
Address local_address(int fd);
// The numeric address of the other end, or "?" if the connection has ended.
std::string peer_text(int fd);
// Equal for all connections from one IPv4 address, one IPv6 network of 64 bits, or Unix sockets.
std::uint64_t source_of(int fd) noexcept;

// A Unix socket in the abstract name space of this network namespace: it has no file and ends with its last descriptor.
// Throws std::invalid_argument if the name is too long.
Address abstract_address(const std::string& name);
// The user at the other end of a connected Unix socket; empty for other sockets.
std::optional<uid_t> peer_user(int fd) noexcept;

// Throws std::system_error.
Fd listen_at(const Address& address);
// Accepts the next waiting connection; not open if there is none.
Fd accept_at(int listener) noexcept;
// Begins to connect. The socket becomes writable when the connection is established or has failed. Not open if it
// failed at once, with errno set.
Fd dial(const Address& address) noexcept;
// The errno with which a connection failed; 0: none.
int error_of(int fd) noexcept;

// Whether both ends of a TCP connection have the same address, so that its packets never leave the host.
bool is_within_host(int fd) noexcept;
// For a connection within the host: sets the congestion control "reno", which every kernel has and every user may set.
// If the system's default is BBR, which searches for a line rate that does not exist here, exchanges of 16 MiB take 1.4
// times as long.
void pace_nothing(int fd) noexcept;
// The bytes of the stream that one packet of a connection within the host carries: 65,483 on the loopback interface.
std::size_t packet_bytes(int fd) noexcept;

// The smallest round trip that the kernel has seen on a TCP connection of late; 0: not known, or another socket
// (round_trip.cc).
Duration smallest_round_trip(int fd) noexcept;

// Whether a TCP connection has a round trip of more than 1 ms and a congestion control that starts slowly again after a
// pause of a few round trips. BBR does not do that; no congestion control does with
// net.ipv4.tcp_slow_start_after_idle=0.
bool cools_down(int fd) noexcept;

// Makes the kernel end a TCP connection (ETIMEDOUT) whose other side acknowledges nothing, or accepts no waiting data,
// for `limit`. Where there is nothing to send, the kernel sends three keep-alive probes. It counts whole seconds, so a
// limit below 4 s means 4 s. No effect on other sockets.
void limit_silence(int fd, std::chrono::milliseconds limit) noexcept;

// The outcome of a call: bytes moved, and whether the stream has ended because the other side closed it (error 0) or
// the connection broke (error: errno).
struct Moved {
  std::size_t bytes = 0;
  bool ended = false;
  int error = 0;
};
Moved receive_some(int fd, std::span<iovec> into) noexcept;
Moved send_some(int fd, std::span<iovec> from) noexcept;
inline iovec as_iovec(std::span<const std::byte> bytes) {
  return {const_cast<std::byte*>(bytes.data()), bytes.size()};
}

// Makes a poll() of fd() in another thread return.
class Wakeup {
 public:
  Wakeup();
  int fd() const { return fd_.get(); }
  void wake() noexcept;  // any thread
  void clear() noexcept;

 private:
  Fd fd_;
  std::atomic<bool> pending_{false};  // saves a system call where one is pending; orders nothing
};

}  // namespace horo
