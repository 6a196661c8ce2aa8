#include "horo/session_links.h"

#include <memory>
#include <utility>

namespace horo {

// MPI is started once in a process, and an exchange of the caller may work only once.
Reconnect reconnect_by(const Config& config) {
  if (config.backend == "mpi" || config.meet_by == MeetBy::kExchange) return nullptr;
  return [config](std::uint32_t epoch) { return find_others(config, epoch); };
}

FirstLinks first_links_by(const Config& config, const Exchange& exchange) {
  return [&config, &exchange](const IsCancelled& is_cancelled) {
    return find_others(config, kFirstEpoch, exchange, is_cancelled);
  };
}

FirstLinks given(Links links) {
  return [given = std::make_shared<Links>(std::move(links))](const IsCancelled&) { return std::move(*given); };
}

}  // namespace horo
