#include "tools/horo/run/packet_socket.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <span>
#include <system_error>
#include <utility>

#include "horo/base/error.h"

namespace horo::tools {
namespace {

// recv() that does not block. At most one descriptor is passed with a packet: there is no place for more.
ssize_t receive_packet(int socket, std::span<std::byte> buffer, Descriptor& passed) {
  iovec bytes{buffer.data(), buffer.size()};
  alignas(cmsghdr) char control[CMSG_LEN(sizeof(int))];
  msghdr packet{};
  packet.msg_iov = &bytes;
  packet.msg_iovlen = 1;
  packet.msg_control = control;
  packet.msg_controllen = sizeof control;
  const ssize_t got = ::recvmsg(socket, &packet, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  const cmsghdr* const header = got < 0 ? nullptr : CMSG_FIRSTHDR(&packet);
  if (header != nullptr && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS &&
      header->cmsg_len == CMSG_LEN(sizeof(int))) {
    int fd = -1;
    std::memcpy(&fd, CMSG_DATA(header), sizeof(fd));
    passed = Descriptor(fd);
  }
  return got;
}

}  // namespace

PacketSocketPair make_packet_socket_pair() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
    throw std::system_error(errno, std::generic_category(), "socketpair");
  }
  PacketSocketPair pair{Descriptor(ends[0]), Descriptor(ends[1])};
  ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
  const int bytes = 4 * static_cast<int>(kMaxPacket);  // the kernel refuses a packet that exceeds the buffer
  for (const int end : ends) ::setsockopt(end, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
  return pair;
}

bool take_packet_socket(const Descriptor& end) {
  int domain = 0, type = 0;
  socklen_t size = sizeof(int);
  pollfd state{end.get(), POLLIN, 0};
  if (::poll(&state, 1, 0) < 0 || (state.revents & POLLHUP) != 0) return false;
  return ::getsockopt(end.get(), SOL_SOCKET, SO_DOMAIN, &domain, &size) == 0 && domain == AF_UNIX &&
         ::getsockopt(end.get(), SOL_SOCKET, SO_TYPE, &type, &size) == 0 && type == SOCK_SEQPACKET &&
         ::fcntl(end.get(), F_SETFL, O_NONBLOCK) == 0;
}

PacketSocket::PacketSocket(struct ev_loop* loop, Descriptor end, OnMessage on_message, OnFault on_fault,
                           const Limits& limits)
    : on_message_(std::move(on_message)),
      on_fault_(std::move(on_fault)),
      most_queued_(limits.queued),
      end_(std::move(end)),
      readable_(loop, end_.get(), EV_READ, [this] { read_all(); }),
      writable_(loop, end_.get(), EV_WRITE, [this] { write_queued(); }),
      joiner_(limits.message),
      buffer_(kMaxPacket + 1) {
  readable_.start();
}

void PacketSocket::send(std::vector<std::byte> message) {
  if (!end_.is_open()) return;
  if (queued_ == most_queued_) {
    return fail("it has not read " + std::to_string(most_queued_) + " messages of horo run");
  }
  const bool is_full = !queue_.empty();
  for (std::vector<std::byte>& bytes : packets_of(std::move(message))) queue_.push_back({std::move(bytes), false});
  queue_.back().is_last = true;
  ++queued_;
  if (is_full) return;
  writable_.start();
  write_queued();
}

void PacketSocket::write_queued() {
  while (end_.is_open() && !queue_.empty() && write(queue_.front().bytes)) {
    if (queue_.front().is_last) --queued_;
    queue_.pop_front();
  }
  if (queue_.empty()) writable_.stop();
}

// An error means that the member's end is closed: the process has ended or is about to.
bool PacketSocket::write(const std::vector<std::byte>& message) {
  const ssize_t sent = ::send(end_.get(), message.data(), message.size(), MSG_NOSIGNAL);
  return sent >= 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != ENOBUFS);
}

void PacketSocket::read_all() {
  while (end_.is_open() && read_one()) {
  }
}

bool PacketSocket::read_one() {
  Descriptor passed;
  const ssize_t got = receive_packet(end_.get(), buffer_, passed);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return errno == EINTR;
  if (got <= 0) {
    close();
    return false;
  }
  try {
    if (passed.is_open()) {
      if (on_descriptor_) on_descriptor_(std::move(passed));
      return true;
    }
    const auto message = joiner_.take(std::span(buffer_).first(static_cast<std::size_t>(got)));
    if (message) on_message_(*message);
  } catch (const ProtocolError& error) {
    fail(error.what());
  }
  return true;
}

void PacketSocket::close() {
  readable_.stop();
  writable_.stop();
  queue_.clear();
  queued_ = 0;
  end_.close();
}

void PacketSocket::fail(const std::string& why) {
  close();
  on_fault_(why);
}

}  // namespace horo::tools
