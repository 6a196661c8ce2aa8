// A rank listens at a port that the system chooses, and at a Unix socket with a random name.

#include "ring/bootstrap/door.h"

#include <unistd.h>

#include <stdexcept>
#include <system_error>
#include <utility>

#include "horo/base/log.h"
#include "horo/base/say.h"
#include "ring/bootstrap/peer_info.h"

namespace horo {
namespace {

// The addresses at which this rank may listen, with port 0, and why others cannot be used.
struct Places {
  std::vector<Address> addresses;
  std::string setting;  // for the error, with its value
  std::string why;
};

// Rank 0 listens at Config::addr; another rank at its address towards rank 0. Without Config::addr, the ranks of
// several hosts listen at their addresses towards the launcher's hub.
Places places_for(const Config& config) {
  if (config.meet_by == MeetBy::kExchange && config.local_size < config.size) {
    return {{address_for_others(config)}, "the address for the other hosts", ""};
  }
  const std::string addr = config.addr.empty() ? "127.0.0.1:1" : config.addr;
  Places places{{}, "HORO_ADDR=" + addr, ""};
  for (const Address& address : usable_addresses(config, addr, "HORO_ADDR")) {
    try {
      places.addresses.push_back(config.rank == 0 ? with_port(address, 0) : address_towards(address));
    } catch (const std::system_error& error) {
      places.why = error.what();
    }
  }
  return places;
}

Listener listen_for_data(const Config& config, const Places& places) {
  std::string why = places.why;
  for (const Address& address : places.addresses) {
    try {
      return listen_for(config, address);
    } catch (const std::system_error& error) {
      why = explain_listening(error);
    }
  }
  throw std::invalid_argument(say(places.setting, ": rank ", config.rank, " ", why));
}

LocalListener listen_locally(const Config& config) {
  const bool is_alone = config.local_size < 2 && config.min_np == 0;  // an elastic job may grow
  if (config.transport == "tcp" || is_alone) return {};
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

Door open_door(const Config& config, const Places& places) {
  Listeners listeners{listen_for_data(config, places), listen_locally(config)};
  PeerInfo mine = make_peer_info(to_text(listeners.data.published));
  mine.host_id = config.host_id;
  mine.local_socket = listeners.local.name;
  mine.backend = config.backend;
  mine.transport = config.transport;
  mine.width = std::to_string(config.tcp_width);
  return {encode(mine), std::make_shared<const Listeners>(std::move(listeners))};
}

}  // namespace

OpenDoor doors_of(const Config& config) {
  return [config, places = places_for(config)] { return open_door(config, places); };
}

}  // namespace horo
