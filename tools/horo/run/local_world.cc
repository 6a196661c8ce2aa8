// The ranks inherit the key as an open memory file, because other users can read command lines, and environments leak
// into logs.
#include "tools/horo/run/local_world.h"

#include <netinet/in.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string_view>
#include <system_error>

#include "horo/base/auth.h"
#include "horo/base/config.h"
#include "horo/base/log.h"
#include "ring/os/socket.h"
#include "tools/horo/machine/cores.h"
#include "tools/horo/run/host_start.h"

namespace horo::tools {
namespace {

[[noreturn]] void fail(const std::string& call) {
  throw std::system_error(errno, std::generic_category(), call);
}

JobKey key_of(const Launch& launch) {
  if (launch.key_file.empty() && !launch.is_part) return make_job_key();
  const auto get = [&](const char* name) -> const char* {
    if (launch.is_part) return std::string_view(name) == "HORO_KEY_FD" ? std::getenv(name) : nullptr;
    return std::string_view(name) == "HORO_KEY_FILE" ? launch.key_file.c_str() : nullptr;
  };
  const auto key = config_from(get).key;
  if (!key) throw std::invalid_argument("--part: expected HORO_KEY_FD, which horo host sets");
  return *key;
}

std::string refusal_text(const std::string& addr, const Address& address, int error) {
  const std::string text = "--addr " + addr + ": rank 0 cannot listen at " + to_text(address) + ": ";
  if (error == EADDRNOTAVAIL) {
    return text +
           "no interface of this host has that address. Give an address of host 0 that the other hosts can reach, "
           "the same on every host, and --node-rank 0 on that host only";
  }
  return text + std::strerror(error) + (error == EADDRINUSE ? ". Choose another port, the same on every host" : "");
}

Descriptor reserve_addr(const std::string& addr) {
  std::string why = "--addr " + addr + ": no address";
  for (const Address& address : resolve(addr, "--addr")) {
    Descriptor fd = reserve_address(address);
    if (fd.is_open()) return fd;
    why = refusal_text(addr, address, errno);
  }
  throw std::invalid_argument(why);
}

Descriptor reserve_port(const Launch& launch) {
  if (launch.addr.empty()) return reserve_addr("127.0.0.1:0");
  return launch.host == 0 ? reserve_addr(launch.addr) : Descriptor();
}

std::vector<RankSlot> slots_of(const Launch& launch) {
  const std::vector<int> cores = allowed_cores();
  const bool is_enough = cores.size() >= static_cast<std::size_t>(launch.ranks());
  if (launch.binding == CoreBinding::kCore && !is_enough) {
    throw std::invalid_argument("--bind-to core: " + std::to_string(launch.ranks()) + " ranks, and this process may " +
                                "use " + std::to_string(cores.size()) + " cores (" + cores_text(cores) +
                                "); expected at least as many cores as ranks, or --bind-to none");
  }
  std::vector<std::vector<int>> shares(static_cast<std::size_t>(launch.ranks()));
  if (launch.binding != CoreBinding::kNone && is_enough) shares = split_cores(cores, launch.ranks());
  std::vector<RankSlot> slots;
  shares.resize(static_cast<std::size_t>(launch.slots()));
  for (std::vector<int>& share : shares) slots.push_back({static_cast<int>(slots.size()), std::move(share)});
  return slots;
}

LocalWorld::Variables own_environment() {
  LocalWorld::Variables variables;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view text(*variable);
    const std::size_t equals = text.find('=');
    if (equals == std::string_view::npos || is_foreign_variable(text.substr(0, equals))) continue;
    variables.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return variables;
}

// Horovod's names for a rank's place: scripts read them before init().
void add_horovod_place(const Launch& launch, int local_rank, LocalWorld::Variables& variables) {
  int cross_rank = 0, cross_size = 0;  // among the hosts that have a rank of this local number
  for (std::size_t host = 0; host < launch.ranks_by_host.size(); ++host) {
    if (launch.ranks_by_host[host] <= local_rank) continue;
    ++cross_size;
    if (host < launch.host) ++cross_rank;
  }
  variables["HOROVOD_RANK"] = variables["HORO_RANK"];
  variables["HOROVOD_SIZE"] = variables["HORO_SIZE"];
  variables["HOROVOD_LOCAL_RANK"] = std::to_string(local_rank);
  variables["HOROVOD_LOCAL_SIZE"] = variables["HORO_LOCAL_SIZE"];
  variables["HOROVOD_CROSS_RANK"] = std::to_string(cross_rank);
  variables["HOROVOD_CROSS_SIZE"] = std::to_string(std::max(cross_size, 1));
}

// torchrun's names for a rank's place: trainers read them before they start anything.
void add_torch_place(const Launch& launch, int local_rank, LocalWorld::Variables& variables) {
  variables["RANK"] = variables["HORO_RANK"];
  variables["WORLD_SIZE"] = variables["HORO_SIZE"];
  variables["LOCAL_RANK"] = std::to_string(local_rank);
  variables["LOCAL_WORLD_SIZE"] = variables["HORO_LOCAL_SIZE"];
  variables["GROUP_RANK"] = variables["NODE_RANK"] = std::to_string(launch.host);
}

// Where rank 0 of torch.distributed may listen. On several hosts a port that they agree on without a message: the one
// behind the rendezvous.
std::pair<std::string, std::string> torch_address(const std::string& address, const Descriptor& reserved) {
  const std::size_t colon = address.rfind(':');
  std::string host = address.substr(0, colon);
  if (host.starts_with('[')) host = host.substr(1, host.size() - 2);
  if (reserved.is_open()) {
    const std::string own = to_text(local_address(reserved.get()));
    return {host, own.substr(own.rfind(':') + 1)};
  }
  const int port = std::atoi(address.c_str() + colon + 1);
  return {host, std::to_string(port < 65534 ? port + 2 : port - 1)};
}

// Rank 0 gathers the steps of the ranks of other hosts.
std::unique_ptr<RunTable> make_table(const Launch& launch) {
  constexpr int kMostOthers = 512;
  const int others = launch.size() > launch.ranks() && launch.host == 0 ? std::min(launch.size(), kMostOthers) : 0;
  try {
    return std::make_unique<RunTable>(RunTable::make(launch.slots(), others));
  } catch (const std::system_error& error) {
    log_debug(std::string("ranks find their places by the environment alone: ") + error.what());
    return nullptr;
  }
}

}  // namespace

// With SO_REUSEADDR two sockets may be bound to one port if at most one of them listens.
Descriptor reserve_address(const Address& address) {
  Descriptor fd(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd.is_open()) fail("socket");
  const int on = 1;
  if (::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0) fail("SO_REUSEADDR");
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address.storage), address.length) != 0) return Descriptor();
  return fd;
}

bool is_foreign_variable(std::string_view name) {
  constexpr std::array<std::string_view, 12> kNames = {
      "RANK",          "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "SLURM_PROCID",    "NODE_RANK",
      "SLURM_LOCALID", "PMI_RANK",   "PMI_SIZE",   "MPI_LOCALRANKID",  "MPI_LOCALNRANKS", "GROUP_RANK"};
  const bool is_in_a_rank = std::getenv("TORCHELASTIC_RUN_ID") != nullptr || std::getenv("HORO_RANK") != nullptr;
  if (is_in_a_rank && (name == "MASTER_ADDR" || name == "MASTER_PORT")) return true;
  return std::find(kNames.begin(), kNames.end(), name) != kNames.end() || name.starts_with("OMPI_COMM_WORLD_") ||
         name.starts_with("TORCHELASTIC_") || name == "HORO_KEY_FILE" || name == "HORO_STARTED_BY" ||
         name == "HORO_GUARD_FD" || name == "HORO_MIN_NP" || name == "HORO_JOINS";
}

LocalWorld::LocalWorld(const Launch& launch)
    : launch_(launch),
      key_(make_key_file(key_of(launch))),
      port_(reserve_port(launch)),
      torch_port_(launch.addr.empty() ? reserve_addr("127.0.0.1:0") : Descriptor()),
      address_(launch.addr.empty() ? to_text(local_address(port_.get())) : launch.addr),
      slots_(slots_of(launch)),
      table_(make_table(launch)) {}

LocalWorld::Variables LocalWorld::variables(const RankSlot& slot, int rank) const {
  Variables variables;
  variables["HORO_RANK"] = std::to_string(rank);
  variables["HORO_LOCAL_RANK"] = std::to_string(slot.local_rank);
  variables["HORO_SIZE"] = std::to_string(std::max(launch_.size(), rank + 1));
  variables["HORO_LOCAL_SIZE"] = std::to_string(std::max(launch_.ranks(), slot.local_rank + 1));
  if (joins(rank)) variables["HORO_JOINS"] = "1";
  variables["HORO_ADDR"] = address_;
  variables["HORO_KEY_FD"] = std::to_string(key_.get());
  Variables place = variables;
  if (joins(rank)) {  // as Session::topology() is before the join
    const int size = std::max({launch_.size(), slot.local_rank + 1, 2});
    place["HORO_RANK"] = std::to_string(slot.local_rank > 0 ? slot.local_rank : size - 1);
    place["HORO_SIZE"] = std::to_string(size);
  }
  add_horovod_place(launch_, slot.local_rank, place);
  add_torch_place(launch_, slot.local_rank, place);
  variables.merge(place);
  if (launch_.min_ranks > 0) variables["HORO_MIN_NP"] = std::to_string(launch_.min_ranks);
  if (!launch_.cwd.empty()) variables["PWD"] = launch_.cwd;
  for (const auto& [name, value] : launch_.variables) variables[name] = value;
  const int threads = std::max(1, granted_cores() / launch_.ranks());
  const auto [master_address, master_port] = torch_address(address_, torch_port_);
  for (const auto& [name, value] : {std::pair<const char*, std::string>("OMP_NUM_THREADS", std::to_string(threads)),
                                    std::pair<const char*, std::string>("PYTHONUNBUFFERED", "1"),
                                    std::pair<const char*, std::string>("MASTER_ADDR", master_address),
                                    std::pair<const char*, std::string>("MASTER_PORT", master_port)}) {
    if (std::getenv(name) == nullptr || is_foreign_variable(name)) variables.emplace(name, value);
  }
  return variables;
}

std::vector<std::string> LocalWorld::environment(const RankSlot& slot, int rank) const {
  Variables all = variables(slot, rank);
  all.merge(own_environment());
  std::vector<std::string> texts;
  for (const auto& [name, value] : all) texts.push_back(std::string(name).append("=").append(value));
  return texts;
}

}  // namespace horo::tools
