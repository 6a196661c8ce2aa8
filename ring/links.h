// TCP between ranks: how they find each other, prove that they belong to the job, and what they get out of it.
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

class MpiWorld;
class ShmArenas;
struct MpiApi;

// All-gather of one small blob (up to 4 KiB) per rank: gives this rank's, returns everybody's by rank. It may block up
// to Config::start_timeout and throws PeerLost naming the ranks that did not come.
using Exchange = std::function<std::vector<std::vector<std::byte>>(std::span<const std::byte> mine)>;

// The exchange over Config::addr: rank 0 listens there for the time of the call, the others dial it. Authenticated like
// every other connection; strangers are dropped, counted and logged once.
Exchange make_tcp_exchange(const Config& config, std::uint32_t epoch);

// The exchange of the ranks of one host that a launcher started: at a Unix socket of rank 0 whose name follows from the
// user, the launcher's job and Config::job. The kernel says who is at the other end; other users are dropped.
Exchange make_local_exchange(const Config& config, std::uint32_t epoch);

// Rank 0 makes a job key and gives it to everybody; the config's own where it has one. Blocks like the exchange.
JobKey share_key(const Config& config, const Exchange& exchange);

// Everything a rank has after it found the others.
struct Links {
  std::unique_ptr<Transport> transport;  // full mesh
  std::unique_ptr<ControlLink> control;  // star around rank 0
  std::vector<std::string> names;        // by rank, for texts: "rank 2 (host node3, pid 1234)"
  std::shared_ptr<ShmArenas> arenas{};   // memory that this rank shares with others of its host; null: none
  std::shared_ptr<MpiWorld> mpi{};       // carries the transport's bytes; null: no MPI does
};

// Listens, exchanges addresses, connects: data connections between all pairs, a control connection to rank 0. Every
// connection opens with a HELLO in both directions, at most 256 bytes and Config::hello_timeout each: job, epoch,
// incarnation, ranks and purpose, fresh nonces, and an HMAC-SHA256 over all of it with the job key from both sides.
// Without a key only loopback addresses are used. Descriptors are close-on-exec, sockets TCP_NODELAY and non-blocking.
// Throws PeerLost (somebody did not come in time, by rank), std::invalid_argument (a setting cannot work, by name) or
// std::system_error (the system refuses what every start needs, such as one more descriptor).
// `mpi`: through which bytes go then (Config::backend); the data connections bring last words and show ends.
Links connect_tcp(const Config& config, std::uint32_t epoch, const Exchange& exchange, const MpiApi* mpi = nullptr);

// connect_tcp as Config::meet_by says; `exchange` is for MeetBy::kExchange alone.
Links find_others(const Config& config, std::uint32_t epoch, const Exchange& exchange = {});

// The same without network, for one process: rank threads of tests.
std::vector<Links> connect_in_process(int size);

}  // namespace horo
