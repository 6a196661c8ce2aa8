// The C library's tcp_info has no field for it, and its header cannot be included beside the kernel's.
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstddef>
#include <cstdint>

#include "ring/os/socket.h"

namespace horo {

Duration smallest_round_trip(int fd) noexcept {
  tcp_info info{};
  socklen_t length = sizeof(info);
  const bool is_read = ::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) == 0;
  const bool has_field = length >= offsetof(tcp_info, tcpi_min_rtt) + sizeof(info.tcpi_min_rtt);
  if (!is_read || !has_field || info.tcpi_min_rtt == UINT32_MAX) return Duration::zero();
  return std::chrono::microseconds(info.tcpi_min_rtt);
}

}  // namespace horo
