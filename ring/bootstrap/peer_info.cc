// In every version of horo an info begins with the magic number and the version; the rest may differ by version.

#include "ring/bootstrap/peer_info.h"

#include <bit>
#include <stdexcept>

#include "horo/base/error.h"
#include "horo/base/say.h"
#include "horo/base/version.h"
#include "horo/base/wire.h"

namespace horo {
namespace {

constexpr std::uint32_t kMagic = 0x6f726f68;  // "horo"
constexpr std::size_t kMaxTextBytes = 256;
constexpr const char* kUnknown = "one that gives no version";

std::string version_in(std::span<const std::byte> blob) {
  try {
    ByteReader reader(blob);
    if (reader.u32() == kMagic) return reader.text(kMaxTextBytes);
  } catch (const ProtocolError&) {
    return kUnknown;
  }
  return kUnknown;
}

PeerInfo decode(std::size_t rank, std::span<const std::byte> blob) {
  try {
    ByteReader reader(blob);
    reader.u32();
    PeerInfo info;
    info.version = reader.text(kMaxTextBytes);
    info.byte_order = reader.text(kMaxTextBytes);
    info.address = reader.text(kMaxTextBytes);
    info.host_id = reader.text(kMaxTextBytes);
    info.local_socket = reader.text(kMaxTextBytes);
    info.backend = reader.text(kMaxTextBytes);
    info.transport = reader.text(kMaxTextBytes);
    info.width = reader.text(kMaxTextBytes);
    info.process.host = reader.text(kMaxTextBytes);
    info.process.space = reader.text(kMaxTextBytes);
    info.process.pid = static_cast<std::int64_t>(reader.u64());
    info.process.started = reader.u64();
    reader.expect_end();
    return info;
  } catch (const ProtocolError& error) {
    throw PeerLost(static_cast<int>(rank), say("the peer info of rank ", rank, " cannot be read: ", error.what()));
  }
}

// "X on rank 0, Y on ranks 1, 3".
std::string differences(const std::vector<std::string>& values) {
  std::vector<int> others;
  std::string other;
  for (std::size_t rank = 1; rank < values.size(); ++rank) {
    if (values[rank] == values[0] || (!other.empty() && values[rank] != other)) continue;
    other = values[rank];
    others.push_back(static_cast<int>(rank));
  }
  return others.empty() ? "" : say(values[0], " on rank 0, ", other, " on ", say_ranks(others));
}

}  // namespace

PeerInfo make_peer_info(const std::string& address) {
  return {kVersion,      std::endian::native == std::endian::little ? "little" : "big", address, "", "", "", "", "1",
          this_process()};
}

std::vector<std::byte> encode(const PeerInfo& info) {
  ByteWriter writer;
  writer.u32(kMagic);
  writer.text(info.version);
  writer.text(info.byte_order);
  writer.text(info.address);
  writer.text(info.host_id);
  writer.text(info.local_socket);
  writer.text(info.backend);
  writer.text(info.transport);
  writer.text(info.width);
  writer.text(info.process.host);
  writer.text(info.process.space);
  writer.u64(static_cast<std::uint64_t>(info.process.pid));
  writer.u64(info.process.started);
  return writer.take();
}

std::vector<PeerInfo> read_peer_infos(std::span<const std::vector<std::byte>> blobs) {
  std::vector<std::string> versions, orders, backends, widths, transports;
  for (const auto& blob : blobs) versions.push_back(version_in(blob));
  if (const std::string found = differences(versions); !found.empty()) {
    throw std::invalid_argument("the version of horo must be equal on all ranks: it is " + found +
                                ". Install the same version everywhere");
  }
  std::vector<PeerInfo> infos;
  for (std::size_t rank = 0; rank < blobs.size(); ++rank) {
    infos.push_back(decode(rank, blobs[rank]));
    orders.push_back(infos.back().byte_order);
    backends.push_back(infos.back().backend);
    widths.push_back(infos.back().width);
    transports.push_back(infos.back().transport);
  }
  if (const std::string found = differences(orders); !found.empty()) {
    throw std::invalid_argument("the byte order must be equal on all ranks: it is " + found);
  }
  if (const std::string found = differences(backends); !found.empty()) {
    throw std::invalid_argument("HORO_BACKEND must be equal on all ranks: it is " + found);
  }
  if (const std::string found = differences(widths); !found.empty()) {
    throw std::invalid_argument("HORO_TCP_WIDTH must be equal on all ranks: it is " + found);
  }
  // Ranks of one host derive from it how many connections they have.
  const std::string found = differences(transports);
  if (widths.front() != "1" && !found.empty()) {
    throw std::invalid_argument("HORO_TRANSPORT must be equal on all ranks: it is " + found);
  }
  return infos;
}

}  // namespace horo
