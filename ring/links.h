// The start of a rank: finding the other ranks, authentication, and the connections that result.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "horo/base/config.h"
#include "ring/control_link.h"
#include "ring/transport.h"

namespace horo {

class ShmArenas;
struct MpiApi;

// All-gather of one small blob (up to 4 KiB) per rank: takes the blob of this rank, returns the blobs of all ranks, by
// rank. Blocks up to Config::start_timeout; throws PeerLost naming the ranks that are missing.
using Exchange = std::function<std::vector<std::vector<std::byte>>(std::span<const std::byte> mine)>;

// Asked every few milliseconds while ranks connect: true ends the attempt with PeerLost.
using IsCancelled = std::function<bool()>;

// The exchange over Config::addr: rank 0 listens there during the call, the other ranks dial it. Authenticated like
// every other connection; connections of unauthenticated peers are dropped, counted and logged once.
Exchange make_tcp_exchange(const Config& config, std::uint32_t epoch, IsCancelled is_cancelled = {});

// The exchange of the ranks of one host that a launcher started, at a Unix socket of rank 0. The socket's name is
// derived from the user, the launcher's job and Config::job. The kernel reports the user of the peer; connections of
// other users are dropped.
Exchange make_local_exchange(const Config& config, std::uint32_t epoch, IsCancelled is_cancelled = {});

// Returns the config's job key, or a new key that rank 0 makes and sends to all ranks. Blocks like the exchange.
JobKey share_key(const Config& config, const Exchange& exchange);

// The connections of a rank, and the memory that it shares with ranks of its host.
struct Links {
  std::unique_ptr<Transport> transport;  // full mesh
  std::unique_ptr<ControlLink> control;  // star around rank 0
  std::vector<std::string> names;        // by rank, for texts: "rank 2 (host node3, pid 1234)"
  std::shared_ptr<ShmArenas> arenas{};   // memory that this rank shares with others of its host; null: none
};

// Listens, exchanges addresses and connects: a data connection between every pair of ranks, and a control connection of
// every rank to rank 0. Every connection opens with a HELLO in both directions, at most 256 bytes and
// Config::hello_timeout each: job, epoch, incarnation, ranks and purpose, fresh nonces, and an HMAC-SHA256 over all of
// it with the job key from both sides. Without a key only loopback addresses are used. Descriptors are close-on-exec,
// sockets TCP_NODELAY and non-blocking. `mpi`: carries the bytes of the data connections (Config::backend); the sockets
// then carry abort notices and goodbyes, and show the end of a peer. Blocks up to Config::start_timeout, and without a
// limit while MPI starts. Throws PeerLost (ranks did not connect in time, or were lost), std::invalid_argument (a
// setting cannot work, by name) or std::system_error (a required resource of the system, such as a descriptor, is not
// available).
Links connect_tcp(const Config& config, std::uint32_t epoch, const Exchange& exchange, const MpiApi* mpi = nullptr,
                  const IsCancelled& is_cancelled = {});

// Where the other ranks connect to this one. The card tells them how: an encoded PeerInfo, up to 4 KiB.
struct Listeners;
struct Door {
  std::vector<std::byte> card;
  std::shared_ptr<const Listeners> listeners;  // open while they exist
  // Of an earlier epoch, if its memory is used again: all processes that have it are among the ranks. Null: new memory.
  std::shared_ptr<const ShmArenas> arenas{};
};

// Opens doors of this rank, each with sockets of its own. doors_of() determines at which addresses the rank can listen:
// later doors need neither rank 0 nor a name server. Both throw as connect_tcp does.
using OpenDoor = std::function<Door()>;
OpenDoor doors_of(const Config& config);

// connect_tcp without an exchange: `cards` are those of the doors of all ranks, by rank, and `door` is the one of this
// rank. No MPI.
Links connect_doors(const Config& config, std::uint32_t epoch, const Door& door,
                    std::span<const std::vector<std::byte>> cards, const IsCancelled& is_cancelled = {});

// The number of ranks on the host of this rank, by the cards of all ranks. Throws as connect_doors does.
int local_size_in(std::span<const std::vector<std::byte>> cards, int rank);

// connect_tcp with the exchange that Config::meet_by selects; `exchange` is used for MeetBy::kExchange alone.
Links find_others(const Config& config, std::uint32_t epoch, const Exchange& exchange = {},
                  const IsCancelled& is_cancelled = {});

// Links without a network, for ranks that are threads of one process.
std::vector<Links> connect_in_process(int size);

}  // namespace horo
