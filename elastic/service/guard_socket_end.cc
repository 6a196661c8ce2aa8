#include "elastic/service/guard_socket_end.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <span>
#include <system_error>

namespace horo {
namespace {

[[noreturn]] void fail_call(const char* call) {
  throw std::system_error(errno, std::generic_category(), call);
}

}  // namespace

GuardSocketEnd::GuardSocketEnd(int fd)
    : fd_(fd), wake_fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)), buffer_(kMaxPacket + 1) {
  if (wake_fd_ < 0) fail_call("eventfd");
}

GuardSocketEnd::~GuardSocketEnd() {
  ::close(wake_fd_);
}

void GuardSocketEnd::send(const AgentSays& message) {
  MutexLock lock(mutex_);
  for (const std::vector<std::byte>& packet : packets_of(encode(message))) {
    while (::send(fd_, packet.data(), packet.size(), MSG_NOSIGNAL) < 0 && errno == EINTR) {
    }
  }
}

std::optional<std::vector<std::byte>> GuardSocketEnd::receive(TimePoint until) {
  while (!is_closed_) {
    if (auto message = read_packet()) return message;
    if (is_closed_) return std::nullopt;
    pollfd polls[] = {{fd_, POLLIN, 0}, {wake_fd_, POLLIN, 0}};
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now());
    const auto wait = std::clamp<std::int64_t>(left.count(), 0, 60'000);
    if (::poll(polls, 2, static_cast<int>(wait)) < 0 && errno != EINTR) fail_call("poll");
    std::uint64_t count = 0;
    if (polls[1].revents != 0 && ::read(wake_fd_, &count, sizeof(count)) > 0) return std::nullopt;
    if (polls[0].revents == 0 && Clock::now() >= until) return std::nullopt;
  }
  return std::nullopt;
}

// Nothing: no whole message has arrived.
std::optional<std::vector<std::byte>> GuardSocketEnd::read_packet() {
  while (true) {
    const ssize_t got = ::recv(fd_, buffer_.data(), buffer_.size(), MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return std::nullopt;
    if (got <= 0) {
      is_closed_ = true;
      return std::nullopt;
    }
    if (auto whole = joiner_.take(std::span(buffer_).first(static_cast<std::size_t>(got)))) return whole;
  }
}

void GuardSocketEnd::wake() noexcept {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(wake_fd_, &one, sizeof(one));
}

}  // namespace horo
