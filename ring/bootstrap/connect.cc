// Every rank listens at a port that the system chooses, publishes its address in the exchange, dials all lower ranks
// and accepts all higher ranks. Rank 0 gets a second connection from every rank, for control.

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>
#include <stdexcept>

#include "horo/base/error.h"
#include "horo/base/log.h"
#include "horo/base/run_place.h"
#include "horo/base/say.h"
#include "ring/bootstrap/address.h"
#include "ring/bootstrap/door.h"
#include "ring/bootstrap/full_mesh.h"
#include "ring/bootstrap/peer_info.h"
#include "ring/bootstrap/shm_handover.h"
#include "ring/links.h"
#include "ring/mpi/mpi_library.h"
#include "ring/mpi/mpi_world.h"
#include "ring/os/descriptors.h"
#include "ring/shm/arena.h"
#include "ring/transport/factories.h"

namespace horo {
namespace {

// A peer on this host that waits for a rank of another host until its own deadline still has time to report that rank.
constexpr std::chrono::seconds kReportMargin{1};

// Where the peer may share memory the Unix socket comes first; with Config::transport "shm" it is the only address.
std::vector<Address> addresses_of(const Config& config, const PeerInfo& info, int rank) {
  std::vector<Address> addresses;
  const bool may_share = !info.local_socket.empty() && config.transport != "tcp" && info.host_id == config.host_id;
  if (may_share) addresses.push_back(abstract_address(info.local_socket));
  if (may_share && config.transport == "shm") return addresses;
  const auto tcp = usable_addresses(config, info.address, say("the address of rank ", rank));
  addresses.insert(addresses.end(), tcp.begin(), tcp.end());
  return addresses;
}

// Data connections to the peer. Ranks that may share memory have one.
int width_towards(const Config& config, const PeerInfo& info) {
  const bool may_share = info.host_id == config.host_id && config.transport != "tcp";
  return may_share || config.backend == "mpi" ? 1 : static_cast<int>(config.tcp_width);
}

// Fills in the connections that this rank dials and accepts.
void add_connections(const Config& config, std::span<const PeerInfo> infos, FullMesh& mesh) {
  for (int rank = 0; rank < config.size; ++rank) {
    const PeerInfo& info = infos[static_cast<std::size_t>(rank)];
    const auto addresses = rank < config.rank ? addresses_of(config, info, rank) : std::vector<Address>();
    const auto add = [&](Purpose purpose, int number) {
      if (rank < config.rank) mesh.targets.push_back({rank, purpose, addresses, number});
      if (rank > config.rank) mesh.dialers.push_back({rank, purpose, number});
    };
    for (int number = 0; number < width_towards(config, info); ++number) add(Purpose::kData, number);
    if (std::min(rank, config.rank) == 0) add(Purpose::kControl, 0);
  }
}

// Payloads are summed between hosts alone: inside a host no wire changes bytes, and the processor that would compute
// the checksums limits the exchange.
void set_checks_and_width(const Config& config, std::span<const PeerInfo> infos, std::vector<Connection>& data) {
  for (Connection& one : data) {
    const bool leaves_host = infos[static_cast<std::size_t>(one.peer)].host_id != config.host_id;
    one.checks = !one.memory && (config.crc == "on" || (config.crc == "auto" && leaves_host));
    one.width = width_towards(config, infos[static_cast<std::size_t>(one.peer)]);
  }
}

void log_links(const Identity& self, const std::vector<Connection>& data) {
  std::vector<int> by_memory, by_socket;
  for (const Connection& connection : data) {
    if (connection.number == 0) (connection.memory ? by_memory : by_socket).push_back(connection.peer);
  }
  std::sort(by_memory.begin(), by_memory.end());
  std::sort(by_socket.begin(), by_socket.end());
  if (!by_memory.empty()) log_info(say("rank ", self.rank, " shares memory with ", say_ranks(by_memory)));
  if (!by_socket.empty()) log_info(say("rank ", self.rank, " has a socket to ", say_ranks(by_socket)));
}

// "rank 2 (host node3, pid 1234)".
std::vector<std::string> names_of(std::span<const PeerInfo> infos) {
  std::vector<std::string> names;
  for (const PeerInfo& info : infos) {
    names.push_back(say("rank ", names.size(), " (host ", info.process.host, ", pid ", info.process.pid, ")"));
  }
  return names;
}

// After all ranks have connected and agreed on the backend, because starting MPI waits for all ranks without a
// deadline.
std::shared_ptr<MpiWorld> start_mpi(const MpiApi& api, const Config& config, const std::vector<Connection>& data,
                                    TimePoint deadline) {
  std::vector<MpiPeer> peers;
  for (const Connection& connection : data) peers.push_back({connection.peer, connection.fd.get()});
  return open_mpi_world(api, config, peers, deadline);
}

std::vector<ProcessIdentity> processes_of(std::span<const PeerInfo> infos) {
  std::vector<ProcessIdentity> processes;
  for (const PeerInfo& info : infos) processes.push_back(info.process);
  return processes;
}

// This rank's own memory and that of the peers; null where it has none of its own.
std::shared_ptr<ShmArenas> arenas_of(int rank, std::vector<Connection>& connections, std::shared_ptr<Arena> own) {
  if (!own) return nullptr;
  ShmArenas::Peers peers;
  for (Connection& connection : connections) {
    if (connection.arena) peers.emplace(connection.peer, std::move(connection.arena));
  }
  return std::make_shared<ShmArenas>(rank, std::move(own), std::move(peers));
}

// Through the doors of all ranks. `cards`: by rank.
Links connect_through(FullMesh mesh, const Config& config, const Door& door,
                      std::span<const std::vector<std::byte>> cards, const MpiApi* mpi) {
  const Identity& self = mesh.self;
  if (cards.size() != static_cast<std::size_t>(self.size)) {
    throw std::invalid_argument(say("the exchange gave ", cards.size(), " addresses, expected ", self.size));
  }
  const std::vector<PeerInfo> infos = read_peer_infos(cards);
  mesh.names = names_of(infos);
  mesh.watched = watch_processes(processes_of(infos));
  mesh.listener = door.listeners->data.fd.get();
  mesh.local_listener = door.listeners->local.fd.get();
  mesh.hello_timeout = config.hello_timeout;
  mesh.deadline = Clock::now() + config.start_timeout;
  mesh.timeout_text = say("within ", config.start_timeout.count(), " ms (HORO_START_TIMEOUT_MS)");
  add_connections(config, infos, mesh);
  std::vector<Connection> data = connect_mesh(mesh), control;
  for (const Connection& one : data) limit_silence(one.fd.get(), config.deadline);
  std::shared_ptr<Arena> arena = share_memory(config, self, data, mesh.deadline + kReportMargin, door.arenas.get());
  const auto middle =
      std::partition(data.begin(), data.end(), [](const Connection& c) { return c.purpose == Purpose::kData; });
  std::move(middle, data.end(), std::back_inserter(control));
  data.erase(middle, data.end());
  set_checks_and_width(config, infos, data);
  if (const auto world = mpi != nullptr ? start_mpi(*mpi, config, data, mesh.deadline) : nullptr) {
    for (Connection& connection : data) {
      connection.mpi = world;
      connection.checks = false;
    }
  }
  log_links(self, data);
  const auto arenas = arenas_of(self.rank, data, std::move(arena));
  return {make_stream_transport(config, self, std::move(data), arenas),
          make_stream_control(config, self, std::move(control), std::move(mesh.watched)), std::move(mesh.names),
          arenas};
}

Links alone(const Config& config, const Identity& self) {
  return {make_stream_transport(config, self, {}), make_stream_control(config, self, {}), {"rank 0"}};
}

}  // namespace

Links connect_tcp(const Config& config, std::uint32_t epoch, const Exchange& exchange, const MpiApi* mpi,
                  const IsCancelled& is_cancelled) {
  FullMesh mesh;
  mesh.is_cancelled = is_cancelled;
  if (config.guard_fd >= 0) mesh.longest_poll = kElasticStartPoll;
  mesh.self = identity_of(config, epoch);
  if (mesh.self.size == 1) return alone(config, mesh.self);
  check_descriptors(config);
  const Door door = doors_of(config)();
  const auto cards = exchange(door.card);
  return connect_through(std::move(mesh), config, door, cards, mpi);
}

Links connect_doors(const Config& config, std::uint32_t epoch, const Door& door,
                    std::span<const std::vector<std::byte>> cards, const IsCancelled& is_cancelled) {
  FullMesh mesh;
  mesh.is_cancelled = is_cancelled;
  if (config.guard_fd >= 0) mesh.longest_poll = kElasticStartPoll;
  mesh.self = identity_of(config, epoch);
  if (mesh.self.size == 1) return alone(config, mesh.self);
  check_descriptors(config);
  return connect_through(std::move(mesh), config, door, cards, nullptr);
}

int local_size_in(std::span<const std::vector<std::byte>> cards, int rank) {
  const std::vector<PeerInfo> infos = read_peer_infos(cards);
  const std::string& host = infos.at(static_cast<std::size_t>(rank)).host_id;
  return static_cast<int>(std::ranges::count(infos, host, &PeerInfo::host_id));
}

namespace {

Links find_by_config(const Config& config, std::uint32_t epoch, const Exchange& exchange,
                     const IsCancelled& is_cancelled) {
  const MpiApi* mpi = config.backend == "mpi" ? &load_mpi(config) : nullptr;  // fails before any peer is waited for
  if (config.meet_by == MeetBy::kAddr)
    return connect_tcp(config, epoch, make_tcp_exchange(config, epoch, is_cancelled), mpi, is_cancelled);
  if (config.meet_by == MeetBy::kLocal) {
    const Exchange local = make_local_exchange(config, epoch, is_cancelled);
    Config keyed = config;
    keyed.key = share_key(config, local);
    return connect_tcp(keyed, epoch, local, mpi, is_cancelled);
  }
  if (!exchange)
    throw std::invalid_argument("the ranks of this session find one another by an exchange, and the caller gave none");
  return connect_tcp(config, epoch, exchange, mpi, is_cancelled);
}

}  // namespace

Links find_others(const Config& config, std::uint32_t epoch, const Exchange& exchange,
                  const IsCancelled& is_cancelled) {
  if (epoch != 0) return find_by_config(config, epoch, exchange, is_cancelled);
  RunStart start(config);
  Links links = find_by_config(config, epoch, exchange, [&] {
    start.check();
    return is_cancelled && is_cancelled();
  });
  start.done();
  return links;
}

}  // namespace horo
