#include "horo/rejoin.h"

#include <algorithm>
#include <chrono>

#include "elastic/rejoin.h"

namespace horo {
namespace {

constexpr std::chrono::seconds kAnswerLimit{5};

}  // namespace

std::optional<Config> rejoin(const Session& evicted) {
  evicted.check_process();
  Config config = evicted.config();
  if (config.guard_fd < 0) return std::nullopt;
  const std::optional<Admission> admission = ask_to_rejoin(config.guard_fd, kAnswerLimit);
  if (!admission) return std::nullopt;
  config.rank = static_cast<int>(admission->id);
  config.size = std::max(config.size, config.rank + 1);
  config.guard_fd = admission->guard_fd;
  config.joins = true;
  return config;
}

}  // namespace horo
