// With TUNSETOFFLOAD the kernel passes trains of segments without checksums, so a packet of 64 KiB costs as much as one
// of 1500 bytes.
#include "tools/relay/tun.h"

#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/uio.h>

#include <cerrno>
#include <system_error>

namespace horo::tools::relay {
namespace {

constexpr std::size_t kMostBytes = 64 << 10;
constexpr unsigned kOffloads = TUN_F_CSUM | TUN_F_TSO4;

[[noreturn]] void fail(const std::string& what) {
  throw std::system_error(errno, std::generic_category(), what);
}

Descriptor open_file(const std::string& path, int flags) {
  Descriptor file(::open(path.c_str(), flags | O_CLOEXEC));
  if (!file.is_open()) fail(path);
  return file;
}

void enter(const Descriptor& name_space, const std::string& name) {
  if (::setns(name_space.get(), CLONE_NEWNET) != 0) fail("network namespace " + name);
}

void configure(int fd, const std::string& device) {
  ifreq request{};
  request.ifr_flags = IFF_TUN | IFF_NO_PI | IFF_VNET_HDR;
  device.copy(request.ifr_name, sizeof(request.ifr_name) - 1);
  if (::ioctl(fd, TUNSETIFF, &request) != 0) fail("TUN device " + device);
  if (::ioctl(fd, TUNSETOFFLOAD, kOffloads) != 0) fail("offloads of TUN device " + device);
}

}  // namespace

// A device belongs to the namespace in which its file was opened.
Tun::Tun(const std::string& name_space, const std::string& device) : buffer_(kMostBytes) {
  const Descriptor own = open_file("/proc/self/ns/net", O_RDONLY);
  const Descriptor there = open_file("/run/netns/" + name_space, O_RDONLY);
  enter(there, name_space);
  try {
    fd_ = open_file("/dev/net/tun", O_RDWR | O_NONBLOCK);
    configure(fd_.get(), device);
  } catch (...) {
    enter(own, "of this process");
    throw;
  }
  enter(own, "of this process");
}

std::optional<Packet> Tun::read() {
  Packet packet;
  const iovec parts[] = {{&packet.offload, sizeof(packet.offload)}, {buffer_.data(), buffer_.size()}};
  const ssize_t got = ::readv(fd_.get(), parts, 2);
  if (got < static_cast<ssize_t>(sizeof(packet.offload))) return std::nullopt;
  const auto end = buffer_.begin() + (got - static_cast<ssize_t>(sizeof(packet.offload)));
  packet.bytes.assign(buffer_.begin(), end);
  return packet;
}

bool Tun::write(const Packet& packet) {
  Offload offload = packet.offload;
  const iovec parts[] = {{&offload, sizeof(offload)},
                         {const_cast<std::byte*>(packet.bytes.data()), packet.bytes.size()}};
  return ::writev(fd_.get(), parts, 2) > 0;
}

}  // namespace horo::tools::relay
