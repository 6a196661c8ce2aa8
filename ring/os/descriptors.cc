#include "ring/os/descriptors.h"

#include <sys/resource.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <stdexcept>
#include <system_error>

#include "horo/base/say.h"

namespace horo {
namespace {

// Listeners, wake-ups and a few handshakes of unauthenticated peers.
constexpr std::uint64_t kBesides = 16;

// Data connections to every other rank, a control connection to rank 0 (on rank 0: one from every other rank) and a
// process descriptor for each rank of this host.
std::uint64_t needed_by(const Config& config) {
  const auto others = static_cast<std::uint64_t>(config.size - 1);
  const auto near = config.transport == "tcp" ? 0 : static_cast<std::uint64_t>(config.local_size - 1);
  const std::uint64_t data = near + (others - std::min(near, others)) * config.tcp_width;
  return data + (config.rank == 0 ? others : 1) + static_cast<std::uint64_t>(config.local_size) + kBesides;
}

std::uint64_t open_now() {
  std::error_code error;
  const std::filesystem::directory_iterator files("/proc/self/fd", error);
  return error ? 0 : static_cast<std::uint64_t>(std::distance(begin(files), end(files)));
}

// RLIM_INFINITY is larger than any other limit.
rlim_t most_open() {
  rlimit limit{};
  return ::getrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_cur : RLIM_INFINITY;
}

}  // namespace

std::size_t free_descriptors() {
  const std::uint64_t most = most_open(), open = open_now();
  return static_cast<std::size_t>(most - std::min(most, open));
}

void check_descriptors(const Config& config) {
  const rlim_t most = most_open();
  if (most == RLIM_INFINITY) return;
  const std::uint64_t needed = needed_by(config), open = open_now();
  if (open + needed <= most) return;
  throw std::invalid_argument(
      say("rank ", config.rank, " needs ", needed, " descriptors for connections to ", config.size - 1,
          " other ranks and has ", open, " open already, but this process may open ", most,
          " (RLIMIT_NOFILE). Raise the limit before the job starts: ulimit -n ", std::bit_ceil(2 * (open + needed))));
}

}  // namespace horo
