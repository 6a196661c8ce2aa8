#include "elastic/rejoin.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string>
#include <system_error>
#include <utility>

#include "elastic/packets.h"
#include "elastic/pass_descriptor.h"
#include "horo/base/error.h"
#include "horo/base/log.h"
#include "horo/base/time.h"
#include "horo/base/wire.h"

namespace horo {
namespace {

class Ends {
 public:
  Ends() {
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds_.data()) != 0) {
      throw std::system_error(errno, std::generic_category(), "socketpair");
    }
    const int bytes = 4 * static_cast<int>(kMaxPacket);  // the kernel refuses a packet that exceeds the buffer
    for (const int fd : fds_) ::setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
  }
  ~Ends() {
    for (const int fd : fds_) {
      if (fd >= 0) ::close(fd);
    }
  }
  Ends(const Ends&) = delete;
  Ends& operator=(const Ends&) = delete;

  int own() const { return fds_[0]; }
  void pass_other(int socket) {
    pass_descriptor(socket, fds_[1]);
    ::close(std::exchange(fds_[1], -1));
  }
  // A GuardLink expects a socket that was inherited.
  int release() {
    ::fcntl(own(), F_SETFD, 0);
    return std::exchange(fds_[0], -1);
  }

 private:
  std::array<int, 2> fds_{-1, -1};
};

// Whether the socket has a packet, or its end, before `until`.
bool wait_for(int socket, TimePoint until) {
  while (true) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now());
    pollfd one{socket, POLLIN, 0};
    const int found = ::poll(&one, 1, static_cast<int>(std::max<std::int64_t>(left.count(), 0)));
    if (found > 0) return true;
    if (found == 0 || errno != EINTR) return false;
  }
}

}  // namespace

std::optional<Admission> ask_to_rejoin(int guard_fd, std::chrono::milliseconds limit) {
  Ends ends;
  try {
    ends.pass_other(guard_fd);
  } catch (const std::system_error& error) {
    log_info(std::string("this rank does not join again: ") + error.what());
    return std::nullopt;
  }
  if (!wait_for(ends.own(), Clock::now() + limit)) return std::nullopt;
  std::array<std::byte, 64> packet{};
  const ssize_t got = ::recv(ends.own(), packet.data(), packet.size(), 0);
  if (got <= 0) return std::nullopt;
  PacketJoiner joiner;
  const auto message = joiner.take(std::span(packet).first(static_cast<std::size_t>(got)));
  if (!message) throw ProtocolError("the answer of horo run has more than one packet");
  const MemberId id = decode_admission(*message);
  return Admission{id, ends.release()};
}

std::vector<std::byte> encode_admission(MemberId id) {
  ByteWriter out;
  out.u8(kMemberMessageVersion);
  out.u32(id);
  return out.take();
}

MemberId decode_admission(std::span<const std::byte> bytes) {
  ByteReader in(bytes);
  if (const int version = in.u8(); version != kMemberMessageVersion) {
    throw ProtocolError("an admission of version " + std::to_string(version));
  }
  const MemberId id = in.u32();
  if (id >= kMaxMembers) throw ProtocolError("an admission of member " + std::to_string(id));
  in.expect_end();
  return id;
}

}  // namespace horo
