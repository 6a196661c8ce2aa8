#include "ring/control/control_inbound.h"

#include <algorithm>
#include <utility>

#include "horo/base/say.h"

namespace horo {
namespace {

constexpr std::size_t kChunkBytes = 4 << 10;  // of data through shared memory

}  // namespace

std::vector<ControlInbound> make_inbound(const Identity& self, std::vector<Connection> connections) {
  std::vector<ControlInbound> peers;
  for (Connection& one : connections) {
    ControlInbound& peer = peers.emplace_back();
    peer.stream = one.memory
                      ? make_shm_stream(std::move(one.fd), std::move(*one.memory), self.rank > one.peer, kChunkBytes)
                      : make_socket_stream(std::move(one.fd));
    peer.rank = one.peer;
    peer.name = one.name.empty() ? say("rank ", one.peer) : one.name;
    peer.incarnation = one.incarnation;
  }
  return peers;
}

std::vector<Stream*> streams_of(const std::vector<ControlInbound>& peers) {
  std::vector<Stream*> streams;
  for (const ControlInbound& peer : peers) streams.push_back(peer.stream.get());
  return streams;
}

void drain(std::vector<ControlInbound>& peers, std::span<std::byte> buffer) noexcept {
  for (ControlInbound& peer : peers) {
    for (std::size_t read = 0; !peer.is_closed && read < 64; ++read) {
      iovec part = as_iovec(buffer);
      const Moved moved = peer.stream->receive({&part, 1});
      if (moved.ended) peer.is_closed = true;
      if (moved.bytes == 0) break;
    }
  }
}

bool is_all_delivered(const std::vector<ControlInbound>& peers) noexcept {
  return std::all_of(peers.begin(), peers.end(),
                     [](const ControlInbound& peer) { return peer.is_closed || peer.stream->is_delivered(); });
}

}  // namespace horo
