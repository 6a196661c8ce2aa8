// What a rank says of itself in the exchange, before there is any connection: its version of horo, its address and
// its process.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "ring/os/process.h"

namespace horo {

struct PeerInfo {
  std::string version;
  std::string byte_order;  // "little" or "big": elements travel as they lie in memory
  std::string address;     // host:port, numeric
  std::string place;       // ranks of equal places are on one host (Config::host_id)
  std::string socket;      // name of an abstract Unix socket to meet at before sharing memory; "": it shares none
  std::string backend;     // Config::backend: before MPI starts, which waits for all
  std::string transport;   // Config::transport and
  std::string width;       // Config::tcp_width: how many connections others have to expect
  ProcessMark process;
};

PeerInfo make_card(const std::string& address);
std::vector<std::byte> encode(const PeerInfo& info);

// Everybody's info, by rank. Every version of horo can read the version in the info of every other one, so ranks that
// differ say so, with the same words on all of them: throws std::invalid_argument.
std::vector<PeerInfo> read_peer_infos(std::span<const std::vector<std::byte>> blobs);

}  // namespace horo
