// The mesh: every rank listens at a port that the system chooses, tells the others where, dials all lower ranks and
// accepts all higher ones; rank 0 gets a second connection from everybody, for control.

#include <unistd.h>

#include <algorithm>
#include <map>
#include <optional>
#include <stdexcept>
#include <system_error>

#include "horo/base/error.h"
#include "horo/base/log.h"
#include "horo/base/say.h"
#include "ring/bootstrap/address.h"
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

// Rank 0 is known by Config::addr; the others by the address that they have towards it. Where there is none, ranks of
// several hosts are known by their addresses towards the launcher's hub.
Listener listen_for_data(const Config& config) {
  if (config.meet_by == MeetBy::kExchange && config.local_size < config.size) {
    return listen_for(config, address_for_others(config));
  }
  const std::string addr = config.addr.empty() ? "127.0.0.1:1" : config.addr;
  std::string why;
  for (const Address& address : usable_addresses(config, addr, "HORO_ADDR")) {
    try {
      return listen_for(config, config.rank == 0 ? with_port(address, 0) : address_towards(address));
    } catch (const std::system_error& error) {
      why = explain_listening(error);
    }
  }
  throw std::invalid_argument(say("HORO_ADDR=", addr, ": rank ", config.rank, " ", why));
}

// Where ranks of this host meet for shared memory: not open where Config::transport is tcp, or where it cannot be had
// and need not. The name is nobody's guess; who calls has to prove itself all the same.
struct LocalListener {
  Fd fd;
  std::string name;
};

LocalListener listen_for_memory(const Config& config) {
  if (config.transport == "tcp" || config.local_size < 2) return {};
  const JobKey random = make_job_key();
  std::string name = say("horo-", ::geteuid(), "-", std::hex);
  for (std::size_t i = 0; i < 16; ++i) name += say(std::hex, static_cast<int>(random[i]));
  try {
    return {listen_at(abstract_address(name)), name};
  } catch (const std::system_error& error) {
    const std::string why = say("rank ", config.rank, " (host ", this_process().host, ") ", error.what());
    if (config.transport == "shm") throw std::invalid_argument("HORO_TRANSPORT=shm: " + why);
    log_warning(why + "; no memory is shared with other ranks");
    return {};
  }
}

// By memory, the Unix socket is tried first, or alone where it has to be.
std::vector<Address> addresses_of(const Config& config, const PeerInfo& info, int rank) {
  std::vector<Address> addresses;
  const bool is_near = !info.socket.empty() && config.transport != "tcp" && info.place == config.host_id;
  if (is_near) addresses.push_back(abstract_address(info.socket));
  if (is_near && config.transport == "shm") return addresses;
  const auto far = usable_addresses(config, info.address, say("the address of rank ", rank));
  addresses.insert(addresses.end(), far.begin(), far.end());
  return addresses;
}

// Ranks that may share memory need no more than one.
int width_towards(const Config& config, const PeerInfo& info) {
  const bool may_be_near = info.place == config.host_id && config.transport != "tcp";
  return may_be_near || config.backend == "mpi" ? 1 : static_cast<int>(config.tcp_width);
}

// Those who are to be called and those who will call, all at once.
void expect_ranks(const Config& config, std::span<const PeerInfo> infos, FullMesh& meeting) {
  for (int rank = 0; rank < config.size; ++rank) {
    const PeerInfo& info = infos[static_cast<std::size_t>(rank)];
    const auto addresses = rank < config.rank ? addresses_of(config, info, rank) : std::vector<Address>();
    const auto expect = [&](Purpose purpose, int number) {
      if (rank < config.rank) meeting.callees.push_back({rank, purpose, addresses, number});
      if (rank > config.rank) meeting.callers.push_back({rank, purpose, number});
    };
    for (int number = 0; number < width_towards(config, info); ++number) expect(Purpose::kData, number);
    if (std::min(rank, config.rank) == 0) expect(Purpose::kControl, 0);
  }
}

// Within a host no wire changes bytes, and the processor that would sum them is what limits the exchange.
void describe_links(const Config& config, std::span<const PeerInfo> infos, std::vector<Connection>& data) {
  for (Connection& one : data) {
    const bool leaves_host = infos[static_cast<std::size_t>(one.peer)].place != config.host_id;
    one.checks = !one.memory && (config.crc == "on" || (config.crc == "auto" && leaves_host));
    one.width = width_towards(config, infos[static_cast<std::size_t>(one.peer)]);
  }
}

void say_ways(const Identity& self, const std::vector<Connection>& data) {
  std::vector<int> near, far;
  for (const Connection& connection : data) {
    if (connection.number == 0) (connection.memory ? near : far).push_back(connection.peer);
  }
  std::sort(near.begin(), near.end());
  std::sort(far.begin(), far.end());
  if (!near.empty()) log_info(say("rank ", self.rank, " shares memory with ", say_ranks(near)));
  if (!far.empty()) log_info(say("rank ", self.rank, " has a socket to ", say_ranks(far)));
}

// "rank 2 (host node3, pid 1234)".
std::vector<std::string> names_of(std::span<const PeerInfo> infos) {
  std::vector<std::string> names;
  for (const PeerInfo& info : infos) {
    names.push_back(say("rank ", names.size(), " (host ", info.process.host, ", pid ", info.process.pid, ")"));
  }
  return names;
}

// All ranks are here and mean to.
std::shared_ptr<MpiWorld> start_mpi(const MpiApi& api, const Config& config, const std::vector<Connection>& data,
                                    TimePoint until) {
  std::vector<MpiPeer> peers;
  for (const Connection& connection : data) peers.push_back({connection.peer, connection.fd.get()});
  return open_mpi_world(api, config, peers, until);
}

std::vector<ProcessMark> processes_of(std::span<const PeerInfo> infos) {
  std::vector<ProcessMark> processes;
  for (const PeerInfo& info : infos) processes.push_back(info.process);
  return processes;
}

// This rank's own memory and that of the peers; null where it has none of its own.
std::shared_ptr<ShmArenas> arenas_of(int rank, std::vector<Connection>& connections, std::optional<ShmSegment> own) {
  if (!own) return nullptr;
  std::map<int, ShmSegment> peers;
  for (Connection& connection : connections) {
    if (connection.arena) peers.emplace(connection.peer, std::move(*connection.arena));
  }
  return std::make_shared<ShmArenas>(rank, std::move(*own), std::move(peers));
}

}  // namespace

Links connect_tcp(const Config& config, std::uint32_t epoch, const Exchange& exchange, const MpiApi* mpi) {
  FullMesh meeting;
  meeting.self = identity_of(config, epoch);
  const Identity& self = meeting.self;
  if (self.size == 1) return {make_tcp_transport(config, self, {}), make_tcp_control(config, self, {}), {"rank 0"}};

  check_descriptors(config);
  const Listener listener = listen_for_data(config);
  const LocalListener near = listen_for_memory(config);
  PeerInfo mine = make_card(to_text(listener.published));
  mine.place = config.host_id;
  mine.socket = near.name;
  mine.backend = config.backend;
  mine.transport = config.transport;
  mine.width = std::to_string(config.tcp_width);
  const auto blobs = exchange(encode(mine));
  if (blobs.size() != static_cast<std::size_t>(self.size)) {
    throw std::invalid_argument(say("the exchange gave ", blobs.size(), " addresses, expected ", self.size));
  }
  const std::vector<PeerInfo> infos = read_peer_infos(blobs);
  meeting.names = names_of(infos);
  meeting.watched = watch_processes(processes_of(infos));
  meeting.listener = listener.fd.get();
  meeting.local_listener = near.fd.get();
  meeting.hello_timeout = config.hello_timeout;
  meeting.until = Clock::now() + config.start_timeout;
  meeting.too_late = say("within ", config.start_timeout.count(), " ms (HORO_START_TIMEOUT_MS)");
  expect_ranks(config, infos, meeting);
  std::vector<Connection> data = meet(meeting), control;
  for (const Connection& one : data) limit_silence(one.fd.get(), config.deadline);
  std::optional<ShmSegment> arena = share_memory(config, self, data, meeting.until);
  const auto middle =
      std::partition(data.begin(), data.end(), [](const Connection& c) { return c.purpose == Purpose::kData; });
  std::move(middle, data.end(), std::back_inserter(control));
  data.erase(middle, data.end());
  describe_links(config, infos, data);
  if (const auto world = mpi != nullptr ? start_mpi(*mpi, config, data, meeting.until) : nullptr) {
    for (Connection& connection : data) {
      connection.mpi = world;
      connection.checks = false;
    }
  }
  say_ways(self, data);
  const auto arenas = arenas_of(self.rank, data, std::move(arena));
  const auto world = data.front().mpi;
  return {make_tcp_transport(config, self, std::move(data), arenas),
          make_tcp_control(config, self, std::move(control), std::move(meeting.watched)), std::move(meeting.names),
          arenas, world};
}

Links find_others(const Config& config, std::uint32_t epoch, const Exchange& exchange) {
  const MpiApi* mpi = config.backend == "mpi" ? &load_mpi(config) : nullptr;  // before anybody is waited for
  if (config.meet_by == MeetBy::kAddr) return connect_tcp(config, epoch, make_tcp_exchange(config, epoch), mpi);
  if (config.meet_by == MeetBy::kLocal) {
    const Exchange local = make_local_exchange(config, epoch);
    Config keyed = config;
    keyed.key = share_key(config, local);
    return connect_tcp(keyed, epoch, local, mpi);
  }
  if (!exchange) throw std::invalid_argument("a session whose ranks meet by an exchange was given none");
  return connect_tcp(config, epoch, exchange, mpi);
}

}  // namespace horo
