#include "elastic/pass_descriptor.h"

#include <sys/socket.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <system_error>

namespace horo {

// A packet of no bytes would be the end of the socket.
void pass_descriptor(int socket, int fd) {
  std::byte one{};
  iovec bytes{&one, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr packet{};
  packet.msg_iov = &bytes;
  packet.msg_iovlen = 1;
  packet.msg_control = control;
  packet.msg_controllen = sizeof control;
  cmsghdr* const passed = CMSG_FIRSTHDR(&packet);
  passed->cmsg_level = SOL_SOCKET;
  passed->cmsg_type = SCM_RIGHTS;
  passed->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(passed), &fd, sizeof(int));
  ssize_t sent = 0;
  do {
    sent = ::sendmsg(socket, &packet, MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  if (sent < 0) throw std::system_error(errno, std::generic_category(), "sendmsg of a descriptor");
}

}  // namespace horo
