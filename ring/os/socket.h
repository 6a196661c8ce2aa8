// Sockets as values: descriptors that close themselves, addresses, and non-blocking calls whose outcome is data. Every
// descriptor is close-on-exec, every socket non-blocking, every stream TCP_NODELAY.
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

namespace horo {

// Throws std::system_error with errno and what could not be done.
[[noreturn]] void raise_errno(const std::string& what);

// In a forked child it is closed already, and the number may belong to somebody else: see horo/base/forked.h.
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
// The numeric form, which resolve() reads back.
std::string to_text(const Address& address);
bool is_loopback(const Address& address);
Address with_port(Address address, std::uint16_t port);
// The address of this host from which packets to `peer` leave, port 0.
Address address_towards(const Address& peer);
Address local_address(int fd);
// The other end's numeric address, or "?" if it is gone.
std::string peer_text(int fd);

// A Unix socket in the abstract name space of this network namespace: no file, gone with its last descriptor. Throws
// std::invalid_argument: the name is too long.
Address abstract_address(const std::string& name);
// The user at the other end of a connected Unix socket; nothing for other sockets, which do not say.
std::optional<uid_t> peer_user(int fd) noexcept;

// Throws std::system_error.
Fd listen_at(const Address& address);
// The next waiting connection; not open if there is none.
Fd accept_at(int listener) noexcept;
// Begins to connect; the socket becomes writable when it is decided. Not open if it failed at once, with errno set.
Fd dial(const Address& address) noexcept;
// 0, or the errno with which a connection failed.
int error_of(int fd) noexcept;

// Whether both ends of a TCP connection have one address: its packets never leave the host.
bool is_within_host(int fd) noexcept;
// For such a connection: the oldest congestion control, which every kernel has and lets everybody take. Where the
// system's default is BBR, which looks for a rate that is not there, exchanges of 16 MiB take 1.4 times as long.
void pace_nothing(int fd) noexcept;
// How much of a stream one packet of such a connection carries: on the loopback interface 65,483 bytes.
std::size_t packet_bytes(int fd) noexcept;

// Whether a TCP connection is over a long line (a round trip takes more than 1 ms) and has a congestion control that
// takes a pause of a few round trips for a reason to start slowly again; BBR does not, nor does it where the system is
// told so (net.ipv4.tcp_slow_start_after_idle=0).
bool cools_down(int fd) noexcept;

// Ends a TCP connection (ETIMEDOUT) whose other side acknowledges nothing for so long, or takes nothing of what waits
// to be sent, and asks it for a sign of life where there is nothing to send: three times, of which the kernel counts
// whole seconds, so a limit of less than 4 s is taken for 4 s. No effect on other sockets.
void limit_silence(int fd, std::chrono::milliseconds limit) noexcept;

// What a call moved. `ended`: the other side closed (error 0) or the connection broke (errno).
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

// Makes a poll() in another thread return.
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
