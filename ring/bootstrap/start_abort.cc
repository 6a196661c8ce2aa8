#include "ring/bootstrap/start_abort.h"

#include <sys/socket.h>

#include <algorithm>
#include <span>

#include "horo/base/error.h"
#include "horo/base/wire.h"
#include "ring/os/socket.h"

namespace horo {
namespace {

constexpr std::size_t kMostPeekedBytes = 64 << 10;

}  // namespace

std::vector<std::byte> abort_message(const Identity& self, const AbortNotice& notice) {
  return message_of(self.frame(FrameKind::kAbort), encode(notice));
}

void send_abort(const Connection& connection, const Identity& self, const AbortNotice& notice) {
  const auto message = abort_message(self, notice);
  iovec part = as_iovec(message);
  send_some(connection.fd.get(), {&part, 1});
}

std::optional<AbortNotice> peek_abort(int fd) {
  std::vector<std::byte> bytes(kMostPeekedBytes);
  const ssize_t got = ::recv(fd, bytes.data(), bytes.size(), MSG_PEEK | MSG_DONTWAIT);
  std::span<const std::byte> left(bytes.data(), static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
  try {
    while (left.size() >= kFrameBytes) {
      const Frame frame = decode_frame(left.first<kFrameBytes>(), left.size() - kFrameBytes);
      const auto payload = left.subspan(kFrameBytes, frame.length);
      if (frame.kind == FrameKind::kAbort) return decode_abort(payload);
      left = left.subspan(std::min<std::size_t>(left.size(), frame.bytes()));
    }
  } catch (const ProtocolError&) {
    return std::nullopt;
  }
  return std::nullopt;
}

}  // namespace horo
