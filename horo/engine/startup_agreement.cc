// An all-gather of one row of numbers per rank. It uses default settings, so it works if the settings of the ranks
// differ.
#include "horo/engine/startup_agreement.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <stdexcept>
#include <vector>

#include "horo/base/crc32c.h"
#include "horo/base/error.h"
#include "horo/base/log.h"
#include "horo/base/say.h"
#include "horo/base/settings.h"
#include "horo/base/version.h"
#include "horo/base/wire.h"
#include "ring/group.h"
#include "ring/group/link_costs.h"
#include "ring/shm/arena.h"

namespace horo {
namespace {

enum Column : std::size_t { kLocalRank, kLocalSize, kHost, kSharingRanks, kFixedColumns };

std::vector<const Setting*> compared_settings() {
  std::vector<const Setting*> compared;
  for (const Setting& setting : all_settings()) {
    if (setting.equal_on_all_ranks) compared.push_back(&setting);
  }
  return compared;
}

bool is_text(const Setting& setting) {
  return std::holds_alternative<std::string Config::*>(setting.field);
}

// A text is represented by its hash.
std::vector<std::int64_t> row_of(const Config& config, const ShmArenas* arenas,
                                 const std::vector<const Setting*>& compared) {
  std::vector<std::int64_t> row(kFixedColumns);
  for (int rank = 0; arenas != nullptr && rank < config.size; ++rank) row[kSharingRanks] += arenas->sees(rank) ? 1 : 0;
  row[kLocalRank] = config.local_rank;
  row[kLocalSize] = config.local_size;
  row[kHost] = static_cast<std::int64_t>(hash64(config.host_id));
  for (const Setting* setting : compared) {
    const std::string value = value_in(config, *setting);
    row.push_back(is_text(*setting) ? static_cast<std::int64_t>(hash64(value)) : std::stoll(value));
  }
  return row;
}

Collective of_all_ranks(CollectiveKind kind, const Config& config) {
  Collective collective;
  collective.kind = kind;
  collective.dtype = DType::kInt64;
  for (int rank = 0; rank < config.size; ++rank) collective.contributors.push_back(rank);
  collective.deadline = Clock::now() + config.start_timeout;
  collective.what = "the settings of all ranks";
  return collective;
}

std::vector<std::int64_t> gather(Group& group, const Config& config, std::vector<std::int64_t> row) {
  const auto n = static_cast<std::size_t>(config.size);
  std::vector<std::int64_t> all(n * row.size());
  Collective collective = of_all_ranks(CollectiveKind::kAllGather, config);
  collective.counts.assign(n, row.size());
  collective.in.data = reinterpret_cast<std::byte*>(row.data());
  collective.in.bytes = row.size() * sizeof(std::int64_t);
  collective.out.data = reinterpret_cast<std::byte*>(all.data());
  collective.out.bytes = all.size() * sizeof(std::int64_t);
  group.run(collective);
  return all;
}

// A rank that leaves before all ranks have gathered would make the others fail with PeerLost. So ranks leave after a
// barrier. A rank that loses a peer in the barrier has the values of all ranks, so it ignores the loss.
void wait_for_all(Group& group, const Config& config) {
  try {
    group.run(of_all_ranks(CollectiveKind::kBarrier, config));
  } catch (const PeerLost&) {
    return;
  }
}

// The text of the error, or "" if all settings are equal.
std::string difference(const std::vector<const Setting*>& compared, const std::vector<std::int64_t>& all) {
  const std::size_t width = kFixedColumns + compared.size();
  for (std::size_t i = 0; i < compared.size(); ++i) {
    const std::int64_t first = all[kFixedColumns + i];
    for (std::size_t rank = 1; rank < all.size() / width; ++rank) {
      const std::int64_t other = all[rank * width + kFixedColumns + i];
      if (other == first) continue;
      const std::string name = compared[i]->name;
      if (is_text(*compared[i]))
        return name + " must be equal on all ranks: rank " + std::to_string(rank) + "'s is not rank 0's";
      return name + " must be equal on all ranks: it is " + std::to_string(first) + " on rank 0 and " +
             std::to_string(other) + " on rank " + std::to_string(rank);
    }
  }
  return "";
}

std::vector<int> number_hosts(const std::vector<std::int64_t>& all, std::size_t width) {
  std::vector<std::int64_t> seen;
  std::vector<int> hosts;
  for (std::size_t at = kHost; at < all.size(); at += width) {
    const auto found = std::find(seen.begin(), seen.end(), all[at]);
    hosts.push_back(static_cast<int>(found - seen.begin()));
    if (found == seen.end()) seen.push_back(all[at]);
  }
  return hosts;
}

// Whether there will be messages with a choice of algorithms. If all ranks share memory, few collectives use messages.
bool has_choice(const std::vector<std::int64_t>& all, std::size_t width, const Config& config) {
  bool all_see_all = true;
  for (std::size_t at = kSharingRanks; at < all.size(); at += width)
    all_see_all = all_see_all && all[at] == config.size;
  return config.size > 1 && !all_see_all;
}

double checksum_seconds() {
  const std::vector<std::byte> bytes(64 << 10);
  std::array<double, 5> times{};
  std::uint32_t sum = 0;
  for (double& time : times) {
    const TimePoint begin = Clock::now();
    sum = crc32c(bytes, sum);
    time = std::chrono::duration<double>(Clock::now() - begin).count();
  }
  return *std::min_element(times.begin(), times.end()) / static_cast<double>(bytes.size());
}

// The checksum of most of a message is computed while the rest is on the wire. Measured at 10 Gbit/s, where a byte
// takes 24 times as long as its checksum: 1.4 % of the time of a message of 1 MiB, 0 % of a stream.
bool are_checksums_expensive(const StartupAgreement& found, const Config& config) {
  constexpr double kWireTimes = 16;
  const bool is_one_host = std::all_of(found.hosts.begin(), found.hosts.end(), [](int host) { return host == 0; });
  const double sum = checksum_seconds(), wire = found.costs.between.wire_byte;
  if (is_one_host || wire >= kWireTimes * sum) return false;
  if (config.rank == 0) {
    log_info(say("HORO_CRC=auto: off between hosts, because a byte takes ", 1e9 * wire, " ns on the wire and ",
                 1e9 * sum, " ns in its checksum"));
  }
  return true;
}

}  // namespace

std::string terms_of(const Config& config) {
  std::string terms = std::string("horo=") + kVersion + "\n";
  for (const Setting* setting : compared_settings())
    terms += std::string(setting->name) + "=" + value_in(config, *setting) + "\n";
  return terms;
}

StartupAgreement compare_settings(const Links& links, const Config& config, Counters& counters) {
  std::vector<int> world(static_cast<std::size_t>(config.size));
  std::iota(world.begin(), world.end(), 0);
  const auto group = make_transport_group(links, {world, 0}, Config(), counters);
  const auto compared = compared_settings();
  const std::vector<std::int64_t> row = row_of(config, links.arenas.get(), compared);
  const std::vector<std::int64_t> all = gather(*group, config, row);
  if (const std::string differing = difference(compared, all); !differing.empty()) {
    wait_for_all(*group, config);
    throw std::invalid_argument(differing);
  }
  Topology topology{config.rank, config.size, config.local_rank, config.local_size, 0, 0, 0, config.min_np};
  for (int rank = 0; rank < config.size; ++rank) {
    const std::size_t at = static_cast<std::size_t>(rank) * row.size();
    if (all[at + kLocalSize] != config.local_size) topology.is_homogeneous = false;
    if (all[at + kLocalRank] != config.local_rank) continue;
    ++topology.cross_size;
    if (rank < config.rank) ++topology.cross_rank;
  }
  StartupAgreement found{topology, number_hosts(all, row.size()), usual_costs()};
  if (!has_choice(all, row.size(), config)) return found;
  const TimePoint begin = Clock::now();
  found.costs = measure_costs(*links.transport, *group, found.hosts, begin + config.start_timeout);
  const auto took = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - begin);
  if (config.rank == 0) log_info("costs, measured in " + std::to_string(took.count()) + " us: " + say(found.costs));
  if (config.crc == "auto" && are_checksums_expensive(found, config)) links.transport->stop_checksums();
  return found;
}

}  // namespace horo
