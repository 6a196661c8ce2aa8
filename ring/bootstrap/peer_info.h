// The information that a rank sends about itself in the exchange, before data connections exist: version of horo,
// address, connection settings and process.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "ring/os/process.h"

namespace horo {

struct PeerInfo {
  std::string version;
  std::string byte_order;    // "little" or "big": elements travel as they lie in memory
  std::string address;       // host:port, numeric
  std::string host_id;       // Config::host_id, equal for the ranks of one host
  std::string local_socket;  // name of an abstract Unix socket for ranks of this host; "": the rank shares no memory
  std::string backend;       // Config::backend, compared before MPI starts, because starting MPI waits for all ranks
  std::string transport;     // Config::transport and
  std::string width;         // Config::tcp_width: how many connections others have to expect
  ProcessIdentity process;
};

// The info of this process; `address` is where it listens.
PeerInfo make_peer_info(const std::string& address);
std::vector<std::byte> encode(const PeerInfo& info);

// The infos of all ranks, by rank. Every version of horo can read the version in the info of every other version.
// Throws std::invalid_argument, with the same text on all ranks, where they differ in something that must be equal;
// PeerLost where the info of a rank cannot be read.
std::vector<PeerInfo> read_peer_infos(std::span<const std::vector<std::byte>> blobs);

}  // namespace horo
